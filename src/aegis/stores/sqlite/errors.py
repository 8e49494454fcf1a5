"""The seam to `sqlite3`: every error of the library becomes one of the store's."""

from __future__ import annotations

import sqlite3
from typing import Final

from aegis.errors import InvalidCall, StoreBusy, StoreCorrupt, StoreError, StoreUnavailable

_DAMAGED: Final = "the store is damaged or is not a store of Aegis"
_CORRUPT: Final[dict[int, str]] = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_FORMAT: _DAMAGED,
    sqlite3.SQLITE_SCHEMA: _DAMAGED,
    sqlite3.SQLITE_ERROR: "the store does not have the tables that it should have",
    sqlite3.SQLITE_MISMATCH: "the store was given or holds a value of the wrong type",
    sqlite3.SQLITE_CONSTRAINT: "the store already has what should be new",
}
_UNAVAILABLE: Final[dict[int, str]] = {
    sqlite3.SQLITE_FULL: "the disk of the store is full",
    sqlite3.SQLITE_READONLY: "the store cannot be written",
    sqlite3.SQLITE_PERM: "the store may not be opened",
    sqlite3.SQLITE_AUTH: "the store may not be opened",
    sqlite3.SQLITE_CANTOPEN: "the store cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk of the store fails",
}


def wrapped(error: sqlite3.Error) -> StoreError:
    """The store's error that stands for `error`; its message never quotes SQL or values."""
    extended = getattr(error, "sqlite_errorcode", None)
    if extended is None:
        return StoreUnavailable("the store is closed")
    code = extended & 0xFF  # the low byte is the primary code: https://www.sqlite.org/rescode.html
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy("the store is locked by another writer")
    if code in _CORRUPT:
        return StoreCorrupt(_CORRUPT[code])
    return StoreUnavailable(_UNAVAILABLE.get(code, "the store failed"))


def too_large() -> InvalidCall:
    """The error for a number that no column can hold."""
    return InvalidCall("a number is beyond 64 bits", code="out_of_range")
