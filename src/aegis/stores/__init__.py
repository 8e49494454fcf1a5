"""Stores hold bytes and rows and know no meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aegis.core.ports import Store
from aegis.errors import ConfigError, Problem
from aegis.stores.memory import MemoryStore
from aegis.stores.sqlite import Durability, SqliteStore

__all__ = ["Durability", "MemoryStore", "SqliteStore", "open_store"]

_SQLITE: Final = "sqlite:///"


def open_store(url: str, *, home: Path, durability: Durability = "fsync", busy_s: float = 2.0) -> Store:
    """The store that `url` names: `sqlite:///FILE` (relative to `home`, or absolute with a fourth slash) or `memory:`.

    `busy_s` is how long to wait for another writer, in seconds. Raises `ConfigError` for any other
    URL and `StoreUnavailable` where the file cannot be opened.
    """
    if url == "memory:":
        return MemoryStore(busy_s=busy_s)
    name = url.removeprefix(_SQLITE)
    if name == url or not name or name.endswith("/") or "?" in name or "#" in name:
        raise ConfigError(
            (
                Problem(
                    message="`store` names no store that this version has",
                    pointer="/store",
                    hint="use `sqlite:///aegis.db` (a file in the home), `sqlite:////var/lib/aegis.db` or `memory:`",
                ),
            )
        )
    return SqliteStore(home / name, durability=durability, busy_s=busy_s)
