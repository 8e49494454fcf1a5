"""What every engine shares: the tables and their versions, and what is asked of leaves that are to be added."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from aegis.core.ports import Entry, Head, Payload
from aegis.errors import StoreCorrupt

LAST: Final = "\U0010ffff"  # sorts behind every character of a receipt's id

_sha256 = hashlib.sha256


def migrations_in(file: Path) -> tuple[tuple[str, ...], ...]:
    """Read the statements of a file of SQL; the n-th tuple turns version n into version n + 1."""
    versions = []
    for version in file.read_text(encoding="utf-8").split("\n-- version ")[1:]:
        lines = [line for line in version.splitlines()[1:] if not line.startswith("--")]
        versions.append(tuple("\n".join(lines).rstrip("\n;").split(";\n")))
    return tuple(versions)


def call_key(principal: str, session: str, call_id: str) -> int:
    """Compute the 64-bit key under which a call is indexed: half for the session, half for the call.

    Different calls may share a key; the columns tell them apart.
    """
    return int.from_bytes(_scope(principal, session) + _sha256(call_id.encode()).digest()[:4], "big", signed=True)


@lru_cache(maxsize=4_096)
def _scope(principal: str, session: str) -> bytes:
    return _sha256(f"{principal}\0{session}".encode()).digest()[:4]


def check_leaves(size: int, entries: Sequence[Entry], payloads: Sequence[Payload], head: Head) -> None:
    """Guarantee that `entries` continue a log of `size` leaves up to `head`, and that each payload is of one of them.

    Raises `StoreCorrupt`.
    """
    for offset, entry in enumerate(entries, size):
        if entry.index != offset:
            raise StoreCorrupt(f"index {entry.index} does not continue a log of {offset} leaves")
    if head.size != size + len(entries):
        raise StoreCorrupt("the new head does not stand at the end of the new leaves")

    last = size - 1
    for payload in payloads:  # in the order of their leaves
        if not last < payload.index < head.size:
            raise StoreCorrupt("a payload does not belong to a new leaf of its own")
        last = payload.index
