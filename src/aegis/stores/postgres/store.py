"""The store over one database: connections, transactions, and getting up again after a fault.

One writer connection behind a lock, a pool of reader connections. They are dropped and made anew after
an error, when the server ended them, and in a forked child.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final

import psycopg

from aegis.errors import (
    AegisError,
    StoreBusy,
    StoreConflict,
    StoreCorrupt,
    StoreError,
    StoreInDoubt,
    StoreUnavailable,
)
from aegis.stores.postgres.connect import Connection, Durability, connect, stands
from aegis.stores.postgres.errors import is_lost, wrapped
from aegis.stores.postgres.reader import PostgresReader
from aegis.stores.postgres.schema import migrate
from aegis.stores.postgres.writer import PostgresTransaction

BUSY_S: Final = 2.0  # how long a writer waits for another process
LISTEN_S: Final = 0.1  # between two attempts to reach a server that fell silent
GRACE_S: Final = 0.25  # how long a caller waits for such a server before being refused
IDLE: Final = 8  # reader connections that are kept; more are opened where more read at once
_EPOCH: Final = b"SELECT epoch FROM aegis_control"
# `synchronous_commit` is as this connection has it: `connect` turns it on where the log is to be durable.
_LOSING: Final = b"""
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name"""

_open_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()
_abandoned: list[object] = []  # connections of a parent process: closing them here would end its sessions


class PostgresStore:
    """`core.ports.Store` in the database at `url`.

    `durability` says when a commit counts: `fsync` when the server has it on its disk, `os` when the server has it
    (a crash of the server may lose the newest entries, never tear them). `busy_s` is how long to wait for another
    writer, in seconds.
    """

    is_remote: Final = True

    def __init__(self, url: str, *, durability: Durability = "fsync", busy_s: float = BUSY_S):
        reached = partial(connect, url, durability=durability, on_silence=self._silent)
        self._connect_writer = partial(reached, writer=True)
        self._connect_reader = partial(reached, writer=False)
        self._busy_s = busy_s
        self._closed = False
        self._seen = 0
        self._start_afresh()
        with closing(self._connect_writer()) as connection:
            migrate(connection)
        _open_stores.add(self)

    def transaction(self, *, wait_s: float | None = None, appends: bool = False) -> _WriteContext:
        """An exclusive write transaction: committed durably on exit, undone when the block raises.

        `wait_s` replaces `busy_s` as the time to wait for other writers; beyond it `StoreBusy` is raised.
        `appends` makes no difference here.
        """
        return _WriteContext(self, self._busy_s if wait_s is None else wait_s)

    def reader(self, *, settled: bool = True) -> _ReadContext:
        """A consistent view that does not wait for writers; it is settled always."""
        return _ReadContext(self)

    def epoch(self) -> int:
        """The current control epoch, as the last commit of any process left it."""
        connection = self._take()
        try:
            connection.autocommit = True
            row = connection.execute(_EPOCH).fetchone()
            connection.autocommit = False
        except psycopg.Error as error:
            self._fault(connection)
            raise wrapped(error) from error
        self._give_back(connection)
        if row is None:
            raise StoreCorrupt("the store has no head")
        epoch: int = row[0]
        return epoch

    def losses(self) -> tuple[str, ...]:
        """Settings of the server under which a crash may take or tear what it has confirmed, `name=value` each."""
        connection = self._take()
        try:
            connection.autocommit = True
            rows = connection.execute(_LOSING).fetchall()
            connection.autocommit = False
        except psycopg.Error as error:
            self._fault(connection)
            raise wrapped(error) from error
        self._give_back(connection)
        return tuple(f"{name}={value}" for name, value in rows)

    def close(self) -> None:
        """Close every connection; afterwards every method raises `StoreUnavailable`."""
        self._closed = True
        if not self._lock.acquire(timeout=self._busy_s):
            raise StoreUnavailable("a transaction of this store is still open")
        try:
            self._drop_readers()
            self._drop_writer()
        finally:
            self._lock.release()

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._writer: Connection | None = None
        self._pool: list[Connection] = []
        self._speaks = threading.Event()
        self._speaks.set()

    def _after_fork(self) -> None:
        _abandoned.append((self._writer, self._pool))
        self._start_afresh()

    def _silent(self) -> None:
        """An answer did not come: until one does, nobody else waits for as long."""
        if self._speaks.is_set():
            self._speaks.clear()
            try:
                threading.Thread(target=self._listen, args=(self._speaks,), name="aegis-listen", daemon=True).start()
            except RuntimeError:  # no thread can be started: everybody finds out by themselves
                self._speaks.set()

    def _listen(self, speaks: threading.Event) -> None:
        """Ask the server whether it is there until it says so."""
        while not self._closed and not speaks.wait(LISTEN_S):
            with suppress(StoreError):
                self._connect_reader().close()
                speaks.set()

    def _check_speaks(self) -> None:
        if not self._speaks.is_set() and not self._speaks.wait(GRACE_S):
            raise StoreUnavailable("the database does not answer")

    def _begun(self, until: float) -> tuple[Connection, AbstractContextManager[Any], PostgresTransaction]:
        """The writer's connection inside a transaction that nobody else can be in; the lock is held."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._check_speaks()
        if self._writer is not None and not stands(self._writer):
            self._drop_writer()
        if self._writer is None:
            self._writer = self._connect_writer()
        together = self._writer.pipeline()
        together.__enter__()
        transaction = PostgresTransaction(self._writer)
        transaction.hold(until - time.monotonic())
        return self._writer, together, transaction

    def _check_progress(self, size: int) -> None:
        """Guarantee that the log holds what this process committed; raises `StoreCorrupt` for a restored older one."""
        if size < self._seen:
            raise StoreCorrupt(f"the log went back from {self._seen} to {size} leaves")

    def _take(self) -> Connection:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._check_speaks()
        while self._pool:
            with suppress(IndexError):  # another thread was first
                connection = self._pool.pop()
                if stands(connection):
                    return connection
                connection.close()
        return self._connect_reader()

    def _give_back(self, connection: Connection) -> None:
        if self._closed or len(self._pool) >= IDLE:
            connection.close()
        else:
            self._pool.append(connection)

    def _fault(self, connection: Connection) -> None:
        """Drop a connection that failed, and those that stand beside it: they met the same server."""
        connection.close()
        self._drop_readers()

    def _drop_readers(self) -> None:
        pool, self._pool = self._pool, []
        while pool:
            pool.pop().close()

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class _WriteContext:
    """One write transaction, from holding the head to a durable commit."""

    __slots__ = ("_connection", "_store", "_together", "_transaction", "_wait_s")

    _connection: Connection
    _together: AbstractContextManager[Any]
    _transaction: PostgresTransaction

    def __init__(self, store: PostgresStore, wait_s: float):
        self._store = store
        self._wait_s = wait_s

    def __enter__(self) -> PostgresTransaction:
        store = self._store
        until = time.monotonic() + self._wait_s
        if not store._lock.acquire(timeout=self._wait_s):
            raise StoreBusy("the store is busy with another transaction of this process")
        try:
            self._connection, self._together, self._transaction = store._begun(until)
            store._check_progress(self._transaction.head().size)
        except BaseException:
            store._drop_writer()
            store._lock.release()
            raise
        return self._transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store = self._store
        try:
            if error is None:
                self._connection.commit()
                self._together.__exit__(None, None, None)
                store._seen = self._transaction.head().size
            elif isinstance(error, AegisError) and not isinstance(error, StoreConflict):
                store._drop_writer()  # closing undoes whatever was sent
            else:
                self._connection.rollback()
                self._together.__exit__(None, None, None)
        except psycopg.Error as failure:
            store._drop_writer()
            if error is None:
                if is_lost(failure):
                    raise StoreInDoubt("the answer to a commit was lost") from failure
                raise wrapped(failure) from failure
        finally:
            store._lock.release()


class _ReadContext:
    """One consistent view; its connection goes back to the pool unless it failed."""

    __slots__ = ("_connection", "_store", "_together")

    _connection: Connection
    _together: AbstractContextManager[Any]

    def __init__(self, store: PostgresStore):
        self._store = store

    def __enter__(self) -> PostgresReader:
        self._connection = self._store._take()
        self._together = self._connection.pipeline()
        self._together.__enter__()
        return PostgresReader(self._connection)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store, connection = self._store, self._connection
        if isinstance(error, StoreError):
            store._fault(connection)
            return
        try:
            connection.rollback()
            self._together.__exit__(None, None, None)
        except psycopg.Error as failure:
            store._fault(connection)
            if error is None:
                raise wrapped(failure) from failure
            return
        store._give_back(connection)


def _after_fork() -> None:
    for store in list(_open_stores):
        store._after_fork()


os.register_at_fork(after_in_child=_after_fork)
