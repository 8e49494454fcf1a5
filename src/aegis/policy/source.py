"""What a policy was compiled from."""

from __future__ import annotations

from msgspec import Struct

from aegis.config.config import Config


class Source(Struct, frozen=True, kw_only=True):
    """What a policy was compiled from, so that another process can compile the same; `key` is this compilation's."""

    key: int
    digest: str
    config: Config
    folders: tuple[str, ...]
    cache: str | None
    protected: tuple[str, ...]
