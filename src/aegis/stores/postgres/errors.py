"""The seam to `psycopg`: every error of the library becomes one of the store's."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors as server

from aegis.errors import AegisError, InvalidCall, StoreBusy, StoreCorrupt, StoreUnavailable

# The first that fits says what it is; the classes are those of the server's codes.
_MEANINGS: Final[tuple[tuple[tuple[type[psycopg.Error], ...], type[AegisError], str], ...]] = (
    ((server.LockNotAvailable,), StoreBusy, "the store is locked by another writer"),
    ((psycopg.IntegrityError,), StoreCorrupt, "the store already has what should be new"),
    (
        (server.UndefinedTable, server.UndefinedColumn, server.InvalidSchemaName),
        StoreCorrupt,
        "the store does not have the tables that it should have",
    ),
    ((server.DiskFull,), StoreUnavailable, "the disk of the store is full"),
    ((server.TooManyConnections,), StoreUnavailable, "the database takes no more connections"),
    ((server.ReadOnlySqlTransaction,), StoreUnavailable, "the store cannot be written: the database is read-only"),
    ((server.InsufficientPrivilege,), StoreUnavailable, "the store cannot be written by this user of the database"),
    (
        (server.InvalidPassword, server.InvalidAuthorizationSpecification),
        StoreUnavailable,
        "the database does not let this user in",
    ),
    ((server.InvalidCatalogName,), StoreUnavailable, "there is no such database"),
)


def is_lost(error: psycopg.Error) -> bool:
    """Whether `error` leaves open what the server did: it is no answer of the server, or one that ended the session."""
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def wrapped(error: psycopg.Error) -> AegisError:
    """The error that stands for `error`; its message never quotes SQL, values or the URL."""
    if isinstance(error, psycopg.DataError):
        return InvalidCall("a number is beyond 64 bits", code="out_of_range")
    for classes, meaning, message in _MEANINGS:
        if isinstance(error, classes):
            return meaning(message)
    return StoreUnavailable("the database does not answer")
