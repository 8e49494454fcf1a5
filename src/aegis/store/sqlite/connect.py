"""Connections: how a file of a store is made, opened and brought up to date, and how SQLite's log ahead is kept short.

SQLite keeps writing to a file that was removed or replaced, and everything written there is lost. So the
identity of the file is compared before every transaction.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from aegis.errors import InvalidCall, StoreBusy, StoreCorrupt, StoreError, StoreUnavailable
from aegis.store.rows import migrations_in

Durability = Literal["fsync", "os"]
Identity = tuple[int, int]

PAGE_BYTES: Final = 8_192  # three receipts with their payloads: a commit writes fewer pages than with one

_RETRY_S: Final = 0.01
_REDO_HEADER: Final = 8  # length and checksum of the first frame
START_PAGES: Final = 1_000  # about 8 MiB
BACKSTOP_PAGES: Final = 8_000  # bounds the log that a crash leaves behind to be read again
_COMMIT_PAGES: Final = 2  # what one commit dirties besides its rows

_log = logging.getLogger("aegis.store")


def create(path: Path) -> None:
    """Make the file with mode 0600, in a directory with mode 0700, where they are missing."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise StoreUnavailable(f"the store cannot be opened: {error.strerror}") from error


def end_redo_file(path: Path) -> None:
    """Take the redo file of an older version away; raises `StoreUnavailable` where it holds what the store may lack.

    Those versions acknowledged receipts in it before SQLite had them, and blanked its first bytes once it did.
    """
    redo = f"{path}-redo"
    try:
        descriptor = os.open(redo, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            begins = os.read(descriptor, _REDO_HEADER)
        finally:
            os.close(descriptor)
        if begins.strip(b"\0"):
            raise StoreUnavailable("another version of Aegis left the store in use: open it once with that one")
        os.unlink(redo)  # noqa: PTH108  beside `os.open`, which alone follows no link
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnavailable(f"the store cannot be opened: {error.strerror}") from error


def connect(path: Path, *, durability: Durability, busy_s: float, writer: bool) -> sqlite3.Connection:
    """Open a connection to the existing file at `path`; it never creates one. Raises the store's errors alone."""
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
    """Tell what SQLite finds wrong with the file at `path`, page by page, or `None`; reads the whole file."""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return f"the database cannot be read: {error}"
    return None if found == "ok" else f"the database is damaged: {found}"


class Checkpointer:
    """Moves the write-ahead log into the file when enough was written, one checkpoint at a time.

    Left alone, SQLite does this inside every commit that finds the log long, and that commit waits for several
    flushes of the disk. A short-lived thread does it here; SQLite's own threshold stays as a backstop.

    What is added meanwhile is moved by the commit that follows. Only a log that was moved whole is written again
    from its start (https://www.sqlite.org/wal.html, section 2.3), and flushing a file that does not grow takes half
    the time: its size and its blocks need not be written as well.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]):
        self._connect = connect
        self._nearly = False  # whether all but the newest pages were moved
        self._pages = 0
        self._erasures = 0
        self._cut = 0  # how many erasures the log ahead holds nothing of any more
        self._starting = threading.Lock()  # a thread that does not run yet cannot be waited for
        self._thread: threading.Thread | None = None

    def committed(self, writer: sqlite3.Connection, rows: int, *, erased: bool) -> None:
        """Note a commit of `rows` over `writer`, which is free; starts a checkpoint when one is due, and ends it."""
        self._pages += rows + _COMMIT_PAGES
        self._erasures += erased
        if self._nearly:
            self._finish(writer)
        if self._pages < START_PAGES and not erased:
            return
        if self._thread is not None and self._thread.is_alive():
            return
        with self._starting:
            self._thread = threading.Thread(target=self._run, name="aegis-checkpoint", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is ending: closing the file does what is left
                self._thread = None

    def stop(self) -> None:
        """Wait for a running checkpoint."""
        with self._starting:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        self._pages = 0
        erasures = self._erasures
        try:
            with closing(self._connect()) as connection:
                if erasures == self._cut:
                    _checkpoint(connection, "PASSIVE")
                    self._nearly = True
                # What was erased still stands in the log ahead until that is cut off.
                elif _checkpoint(connection, "TRUNCATE"):
                    self._cut = erasures
        except (StoreError, sqlite3.Error):  # the next commit meets the same fault and reports it
            return

    def _finish(self, writer: sqlite3.Connection) -> None:
        self._nearly = False
        try:
            _checkpoint(writer, "FULL")
        except sqlite3.Error as error:  # what was committed stays so; the next commit meets the fault and reports it
            _log.warning("a checkpoint of the store failed", extra={"error": str(wrapped(error))})


def _checkpoint(connection: sqlite3.Connection, mode: str) -> bool:
    """Tell whether everything was moved."""
    return not connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()[0]


# The tables, and how an older file becomes a current one: forward only, one transaction.

APPLICATION_ID: Final = 0x41454749  # "AEGI": tells our files from others

MIGRATIONS: Final = migrations_in(Path(__file__).with_name("tables.sql"))
SCHEMA_VERSION: Final = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring the file behind `connection` to the current version, or leave it as it was.

    Raises `StoreCorrupt` for a file of another application and `StoreUnavailable` for one that a
    newer version of Aegis wrote. Several processes may call this at once.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)
        if version > len(migrations):
            raise StoreUnavailable(f"the store has schema version {version}, newer than this version of Aegis knows")
        for statements in migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        if version < len(migrations):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def check_version(connection: sqlite3.Connection, expected: int = SCHEMA_VERSION) -> None:
    """Guarantee that an open file is one of ours and current; raises `StoreCorrupt` or `StoreUnavailable`."""
    version = _version(connection)
    if version != expected:
        raise StoreUnavailable(f"the store has schema version {version}, and this version of Aegis needs {expected}")


def _version(connection: sqlite3.Connection) -> int:
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    if (application, version, tables) != (0, 0, 0) and application != APPLICATION_ID:
        raise StoreCorrupt("the file is not a store of Aegis")
    return version


# The seam to `sqlite3`: every error of the library becomes one of the store's.

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
    """Give the store's error that stands for `error`; its message never quotes SQL or values."""
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
    """Give the error for a number that no column can hold."""
    return InvalidCall("a number is beyond 64 bits", code="out_of_range")
