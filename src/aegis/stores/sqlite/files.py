"""The files of a store: made private, and watched so that a lost one is noticed before it is written to.

SQLite goes on writing to a file that was removed or replaced; everything written there is lost. The
identity of the file is therefore compared before every transaction.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from aegis.errors import StoreUnavailable
from aegis.stores.sqlite.checkpoint import BACKSTOP_PAGES
from aegis.stores.sqlite.errors import wrapped
from aegis.stores.sqlite.schema import check_version, migrate

Durability = Literal["fsync", "os"]
Identity = tuple[int, int]

PAGE_BYTES: Final = 8_192  # three receipts with their payloads: a commit writes fewer pages than with one

_RETRY_S: Final = 0.01


def create(path: Path) -> None:
    """Make the file with mode 0600, in a directory with mode 0700, where they are missing."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise StoreUnavailable(f"the store cannot be opened: {error.strerror}") from error


def identity(path: str) -> Identity:
    """Which file stands at `path` now; raises `StoreUnavailable` where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  the cheapest, on every transaction
    except OSError as error:
        raise StoreUnavailable(f"the store's file cannot be found: {error.strerror}") from error
    return found.st_dev, found.st_ino


def connect(path: Path, *, durability: Durability, busy_s: float, writer: bool) -> sqlite3.Connection:
    """A connection to the existing file at `path`; it never creates one. Raises the store's errors alone."""
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw",
            uri=True,
            timeout=busy_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
        )
    except sqlite3.Error as error:
        raise wrapped(error) from error
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA temp_store = MEMORY")
        if writer:
            # secure_delete overwrites what is erased (https://www.sqlite.org/pragma.html#pragma_secure_delete).
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'fsync' else 'NORMAL'}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {BACKSTOP_PAGES}")
            connection.execute(f"PRAGMA fullfsync = {int(durability == 'fsync')}")  # macOS: through the drive's cache
        check_version(connection)
    except sqlite3.Error as error:
        connection.close()
        raise wrapped(error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(path: Path, *, busy_s: float) -> None:
    """Bring a new or older file to the current version, in write-ahead mode; safe for several processes at once."""
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a new file; an older one keeps its own
        connection.execute("PRAGMA secure_delete = ON")
        deadline = time.monotonic() + busy_s
        while True:
            try:
                migrate(connection)
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError as error:
                # Changing the mode does not wait for locks by itself.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
    except sqlite3.Error as error:
        raise wrapped(error) from error
    finally:
        connection.close()
    if mode != "wal":
        raise StoreUnavailable("the file system of the store does not support a write-ahead log")


def damage(path: Path) -> str | None:
    """What SQLite finds wrong with the file at `path`, page by page, or `None`; reads the whole file."""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return f"the database cannot be read: {error}"
    return None if found == "ok" else f"the database is damaged: {found}"
