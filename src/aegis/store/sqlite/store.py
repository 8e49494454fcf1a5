"""The store over one file: connections, transactions, and getting up again after a fault.

One writer connection behind a lock, a pool of reader connections. They are dropped and made anew
after an error, when the file was replaced, and in a forked child. What the redo file acknowledged is
committed before anybody reads.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

from aegis.errors import StoreBusy, StoreConflict, StoreCorrupt, StoreError, StoreUnavailable
from aegis.store.sqlite.files import Checkpointer, Durability, Identity, connect, create, identity, prepare, wrapped
from aegis.store.sqlite.reader import SqliteReader, extend_index
from aegis.store.sqlite.redo import Ahead
from aegis.store.sqlite.writer import SqliteTransaction

BUSY_S: Final = 2.0  # how long a writer waits for another process
WRITER_WAIT_S: Final = 0.01  # how long SQLite itself waits; we ask again until the caller's time is over
FORK_WAIT_S: Final = 1.0  # how long a fork waits for a transaction of this process
INDEX_STEP: Final = 500  # entries indexed in one transaction: bounds how long an append waits for a search
INDEX_STEPS: Final = 10  # transactions of indexing that one search pays for

_log = logging.getLogger("aegis.store")

_open_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_held_for_fork: list[SqliteStore] = []
_abandoned: list[object] = []  # connections of a parent process: closing them here would touch its locks


class SqliteStore:
    """`core.ports.Store` in the file at `path`.

    `durability` says when a commit counts: `fsync` when it is on the disk, `os` when the operating
    system has it (a power cut may lose the newest entries, never tear them). `busy_s` is how long
    to wait for another process, in seconds.
    """

    is_remote: Final = False

    def __init__(self, path: Path, *, durability: Durability = "fsync", busy_s: float = BUSY_S):
        self._name = str(path)
        self._busy_s = busy_s
        self._closed = False
        self._seen = 0
        writer = partial(connect, path, durability=durability, writer=True)
        self._connect_writer = partial(writer, busy_s=min(WRITER_WAIT_S, busy_s))
        self._connect_checkpointer = partial(writer, busy_s=busy_s)
        self._connect_reader = partial(connect, path, durability=durability, busy_s=busy_s, writer=False)
        self._make_ahead = partial(Ahead, path, flushes=durability == "fsync", settle=self._settle_later)
        create(path)
        self._start_afresh()
        self._ahead.redo.join()
        try:
            prepare(path, busy_s=busy_s)
            if self._ahead.is_left_over():
                self._ahead.owes = True
                self._settle()
        except BaseException:
            self._ahead.close()
            raise
        _open_stores.add(self)

    def transaction(self, *, wait_s: float | None = None, appends: bool = False) -> _WriteContext:
        """An exclusive write transaction: committed durably on exit, undone when the block raises.

        `wait_s` replaces `busy_s` as the time to wait for other writers; beyond it `StoreBusy` is raised.
        With `appends` the block appends leaves, puts documents with them, and does nothing else.
        """
        return _WriteContext(self, self._busy_s if wait_s is None else wait_s, appends=appends)

    def reader(self, *, settled: bool = True) -> _ReadContext:
        """A consistent view; without `settled` it waits for nobody, and may lack what the redo file alone holds."""
        return _ReadContext(self, settled=settled)

    def epoch(self) -> int:
        """The current control epoch, as the last commit of any process left it."""
        head = self._ahead.head
        if head is not None and not self._closed:
            return head.epoch  # while the redo file keeps a transaction open, nobody else can move it
        pool = self._pool
        connection = self._take(pool)
        try:
            row = connection.execute("SELECT epoch FROM control").fetchone()
        except sqlite3.Error as error:
            connection.close()
            raise wrapped(error) from error
        pool.append(connection)
        if row is None:
            raise StoreCorrupt("the store has no head")
        epoch: int = row[0]
        return epoch

    def close(self) -> None:
        """Close every connection; afterwards every method raises `StoreUnavailable`."""
        with suppress(StoreError):  # what cannot be committed now stays in the redo file, for the next who opens this
            self._settle()
        self._closed = True
        if not self._lock.acquire(timeout=self._busy_s):
            raise StoreUnavailable("a transaction of this store is still open")
        try:
            self._checkpointer.stop()  # nobody else can start one while the lock is held
            self._drop_readers()
            self._drop_writer()
            self._ahead.close()
        finally:
            self._lock.release()

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._writer_file: Identity | None = None
        self._pool: list[sqlite3.Connection] = []
        self._pool_file: Identity | None = None
        self._checkpointer = Checkpointer(self._connect_checkpointer)
        self._ahead = self._make_ahead()

    def _after_fork(self) -> None:
        self._ahead.redo.close()
        _abandoned.append((self._writer, self._pool, self._checkpointer))
        self._start_afresh()

    def _current_file(self) -> Identity:
        """Which file stands at the path now; raises `StoreUnavailable` where there is none."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if not self._ahead.redo.is_joined:
            self._ahead.redo.join()
        return identity(self._name)

    def _current_writer(self) -> sqlite3.Connection:
        """The writer's connection to the file at the path; the lock is held."""
        found = self._current_file()
        if self._writer is None or found != self._writer_file:
            self._drop_writer()
            self._writer = self._connect_writer()
            self._writer_file = found
        return self._writer

    def _check_progress(self, size: int) -> None:
        """Guarantee that the log holds what this process committed; raises `StoreCorrupt` for a restored older file."""
        if size < self._seen:
            raise StoreCorrupt(f"the log went back from {self._seen} to {size} leaves")

    def _current_pool(self) -> list[sqlite3.Connection]:
        """The pool of reader connections to the file at the path."""
        found = self._current_file()
        if found != self._pool_file:
            self._drop_readers()
            self._pool_file = found
        return self._pool

    def _take(self, pool: list[sqlite3.Connection]) -> sqlite3.Connection:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        try:
            return pool.pop()
        except IndexError:
            return self._connect_reader()

    def _drop_readers(self) -> None:
        # A new list, so that connections in use go back to the old one and die with it.
        pool, self._pool = self._pool, []
        while pool:
            pool.pop().close()

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        self._ahead.lost()
        if writer is not None:
            writer.close()

    def _commit(self, writer: sqlite3.Connection, transaction: SqliteTransaction) -> None:
        """Commit the open transaction; raises `sqlite3.Error` and the store's errors, and then it is lost."""
        ahead, erased = self._ahead, transaction.erased
        try:
            transaction.settle()
            if erased:
                ahead.redo.scrub()
            writer.execute("COMMIT")
        except (sqlite3.Error, OSError, StoreError):
            self._drop_writer()  # closing rolls back whatever is left
            raise
        written = transaction.written + ahead.written
        ahead.committed()
        self._checkpointer.committed(writer, written, erased=erased)

    def _commit_ahead(self) -> None:
        """Commit the transaction that the redo file left open; raises `sqlite3.Error` and the store's errors."""
        if self._ahead.head is not None:
            writer = self._current_writer()  # dropped, and what is open with it, where the file was replaced
            if self._ahead.head is not None:
                self._commit(writer, self._continued(writer))

    def _continued(self, writer: sqlite3.Connection) -> SqliteTransaction:
        """The transaction that the redo file left open."""
        return SqliteTransaction(writer, self._ahead.head, held=self._ahead.held)

    def _settle(self) -> None:
        """Commit what only the redo file has; raises the store's errors."""
        if self._ahead.waits:
            with self.transaction():
                pass

    def _settle_later(self) -> bool:
        """`_settle` for the thread behind; whether there will be more to settle."""
        try:
            self._settle()
        except StoreError as error:  # nothing is lost, and whoever comes next meets the same fault
            if self._closed:  # who closes it settles it, perhaps while this thread waited for its turn
                return False
            _log.warning("the store cannot be settled", extra={"error": str(error)})
        return not self._closed

    def _extend_index(self) -> None:
        for _ in range(INDEX_STEPS):
            with self.transaction() as transaction:
                left = extend_index(transaction, INDEX_STEP)
            if left < INDEX_STEP:
                return


class _WriteContext:
    """One write transaction, from `BEGIN IMMEDIATE` to a durable commit."""

    __slots__ = ("_appends", "_store", "_transaction", "_wait_s", "_writer")

    _writer: sqlite3.Connection
    _transaction: SqliteTransaction

    def __init__(self, store: SqliteStore, wait_s: float, *, appends: bool):
        self._store = store
        self._wait_s = wait_s
        self._appends = appends

    def __enter__(self) -> SqliteTransaction:
        store = self._store
        until = time.monotonic() + self._wait_s
        if not store._lock.acquire(timeout=self._wait_s):
            raise StoreBusy("the store is busy with another transaction of this process")
        try:
            self._writer = self._connected(until)
            ahead = store._ahead
            if ahead.head is not None:
                self._transaction = store._continued(self._writer)
                if self._appends:
                    return self._transaction
                store._commit(self._writer, self._transaction)
            self._begin(until)
            if ahead.owes:
                self._appends = False  # SQLite commits what was put back
            self._transaction = SqliteTransaction(self._writer, held={} if self._appends else None)
            if ahead.owes:
                ahead.put_back(self._transaction)
            store._check_progress(self._transaction.head().size)
        except BaseException as error:
            store._drop_writer()
            store._lock.release()
            if isinstance(error, sqlite3.Error):
                raise wrapped(error) from error
            raise
        return self._transaction

    def _connected(self, until: float) -> sqlite3.Connection:
        """The writer's connection; making one waits too, while another process closes the file as its last user."""
        while True:
            try:
                return self._store._current_writer()
            except StoreBusy:
                if time.monotonic() >= until:
                    raise

    def _begin(self, until: float) -> None:
        """Take the place of the one writer; each try waits for `WRITER_WAIT_S`."""
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not isinstance(wrapped(error), StoreBusy) or time.monotonic() >= until:
                    raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store, transaction = self._store, self._transaction
        ahead = store._ahead
        try:
            if error is None:
                if not (self._appends and ahead.take(transaction)):
                    store._commit(self._writer, transaction)
                store._seen = transaction.head().size
            elif ahead.head is None or transaction.written:
                self._writer.execute("ROLLBACK")
                ahead.lost()
            if isinstance(error, StoreError) and not isinstance(error, StoreConflict):
                store._drop_writer()
        except sqlite3.Error as failure:
            store._drop_writer()
            if error is None:
                raise wrapped(failure) from failure
        except OSError as failure:  # what is erased would stay in the redo file
            raise StoreUnavailable("the disk of the store fails") from failure
        finally:
            store._lock.release()


class _ReadContext:
    """One consistent view; its connection goes back to the pool unless it failed."""

    __slots__ = ("_connection", "_pool", "_reader", "_settled", "_store")

    _pool: list[sqlite3.Connection]
    _connection: sqlite3.Connection
    _reader: SqliteReader

    def __init__(self, store: SqliteStore, *, settled: bool):
        self._store = store
        self._settled = settled

    def __enter__(self) -> SqliteReader:
        ahead = self._store._ahead
        if ahead.owes or (ahead.waits and (self._settled or ahead.held)):
            self._store._settle()
        self._pool = self._store._current_pool()
        self._connection = self._store._take(self._pool)
        try:
            self._connection.execute("BEGIN")
        except sqlite3.Error as error:
            self._connection.close()
            raise wrapped(error) from error
        self._reader = SqliteReader(self._connection)
        return self._reader

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store = self._store
        if isinstance(error, StoreError):
            self._connection.close()
            return
        try:
            self._connection.execute("ROLLBACK")
        except sqlite3.Error as failure:
            self._connection.close()
            if error is None:
                raise wrapped(failure) from failure
            return
        if store._closed or self._pool is not store._pool:
            self._connection.close()
            return
        self._pool.append(self._connection)
        if self._reader.unindexed > INDEX_STEP:
            with suppress(StoreError):  # the index only saves time: what it lacks is scanned
                store._extend_index()


def _before_fork() -> None:
    """A child inherits what SQLite knows of the locks of this process: fork while no transaction is open."""
    for store in list(_open_stores):
        if store._lock.acquire(timeout=FORK_WAIT_S):
            _held_for_fork.append(store)
            with suppress(StoreError, sqlite3.Error, OSError):
                store._commit_ahead()


def _after_fork_in_parent() -> None:
    while _held_for_fork:
        _held_for_fork.pop()._lock.release()


def _after_fork() -> None:
    _held_for_fork.clear()
    for store in list(_open_stores):
        store._after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)
