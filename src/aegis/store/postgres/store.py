"""The store over one database: connections, transactions, and getting up again after a fault.

One writer connection behind a lock, a pool of reader connections. They are dropped and made again after
an error, when the server ended them, and in a forked child.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from typing import Any, Final

import psycopg
from msgspec.structs import replace
from psycopg.types.numeric import Int8

from aegis.core.ports import Document, Entry, Head, Node, Payload
from aegis.errors import (
    AegisError,
    StoreBusy,
    StoreConflict,
    StoreCorrupt,
    StoreError,
    StoreInDoubt,
    StoreUnavailable,
)
from aegis.store.postgres.reader import (
    HEAD,
    Connection,
    Durability,
    PostgresReader,
    connect,
    head_of,
    is_lost,
    migrate,
    stands,
    wrapped,
)
from aegis.store.rows import call_key, check_leaves

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

    @contextmanager
    def transaction(self, *, wait_s: float | None = None) -> Iterator[PostgresTransaction]:
        """Open an exclusive write transaction: committed durably on exit, undone when the block raises.

        `wait_s` replaces `busy_s` as the time to wait for other writers; beyond it `StoreBusy` is raised.
        """
        wait_s = self._busy_s if wait_s is None else wait_s
        until = time.monotonic() + wait_s
        if not self._lock.acquire(timeout=wait_s):
            raise StoreBusy("the store is busy with another transaction of this process")
        try:
            try:
                writer, transaction = self._begun(until)
                self._check_progress(transaction.head().size)
            except BaseException:
                self._drop_writer()
                raise
            try:
                yield transaction
            except BaseException as error:
                self._undo(writer, error)
                raise
            try:
                writer.commit()
            except psycopg.Error as error:
                self._drop_writer()
                if is_lost(error):
                    raise StoreInDoubt("the answer to a commit was lost") from error
                raise wrapped(error) from error
            self._seen = transaction.head().size
        finally:
            self._lock.release()

    def _undo(self, writer: Connection, error: BaseException) -> None:
        """Undo what was written before `error`, which is raised whatever happens here."""
        if isinstance(error, AegisError) and not isinstance(error, StoreConflict):
            self._drop_writer()  # closing undoes whatever was sent
            return
        self._waits_ms = 0  # undone as well, where it was set just now
        try:
            writer.rollback()
        except psycopg.Error:
            self._drop_writer()

    @contextmanager
    def reader(self) -> Iterator[PostgresReader]:
        """Open a consistent view that does not wait for writers; its connection is kept unless it failed."""
        connection = self._take()
        together = connection.pipeline()
        together.__enter__()
        try:
            yield PostgresReader(connection)
        except StoreError:
            self._fault(connection)
            raise
        except BaseException:  # of whoever looked: the view itself is sound
            with suppress(psycopg.Error):
                self._end_view(connection, together)
            raise
        try:
            self._end_view(connection, together)
        except psycopg.Error as error:
            raise wrapped(error) from error

    def _end_view(self, connection: Connection, together: AbstractContextManager[Any]) -> None:
        """End a view, and keep its connection; raises `psycopg.Error`, and then it is dropped."""
        try:
            connection.rollback()
            together.__exit__(None, None, None)
        except psycopg.Error:
            self._fault(connection)
            raise
        self._give_back(connection)

    def epoch(self) -> int:
        """Read the current control epoch, as the last commit of any process left it."""
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
        """List settings of the server under which a crash may take or tear what it has confirmed, `name=value` each."""
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
        self._waits_ms = 0  # what the writer's session waits for a lock; 0 where that is not known
        self._pool: list[Connection] = []
        self._speaks = threading.Event()
        self._speaks.set()

    def _after_fork(self) -> None:
        _abandoned.append((self._writer, self._pool))
        self._start_afresh()

    def _silent(self) -> None:
        """Note that an answer did not come: until one does, nobody else waits for as long."""
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

    def _begun(self, until: float) -> tuple[Connection, PostgresTransaction]:
        """Give the writer's connection inside a transaction that nobody else can be in; the lock is held."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._check_speaks()
        if self._writer is not None and not stands(self._writer):
            self._drop_writer()
        if self._writer is None:
            self._writer = self._connect_writer()
            self._writer.pipeline().__enter__()  # for as long as the connection lasts
            self._waits_ms = 0
        transaction = PostgresTransaction(self._writer)
        waits_ms = max(1, int((until - time.monotonic()) * 1_000))
        if not waits_ms <= self._waits_ms <= waits_ms + waits_ms // 8:  # nearly always what the last one waited
            transaction.wait_at_most(waits_ms)
            self._waits_ms = waits_ms
        transaction.hold()
        return self._writer, transaction

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
        """Drop a connection that failed, and the idle ones: they met the same server."""
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


# Writing rows inside the one exclusive transaction; what needs no answer travels with what follows.

_HOLD: Final = f"{HEAD} FOR UPDATE"
# One statement adds every row of a batch and moves the head: the server plans it once, and runs it once a commit.
_APPEND: Final = (
    "WITH leaf AS (INSERT INTO aegis_leaf (idx, leaf_hash, body, receipt_id, time, kind, principal, agent, session,"
    " call_id, tool, decision, reason, parent, call_key) SELECT * FROM"
    " unnest(%b::int8[], %b::bytea[], %b::bytea[], %b::bytea[], %b::int8[], %b::bytea[], %b::bytea[], %b::bytea[],"
    " %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::int8[])),"
    " payload AS (INSERT INTO aegis_payload (idx, salt, key, body)"
    " SELECT * FROM unnest(%b::int8[], %b::bytea[], %b::bytea[], %b::bytea[])),"
    " node AS (INSERT INTO aegis_node (level, position, hash)"
    " SELECT * FROM unnest(%b::int8[], %b::int8[], %b::bytea[]))"
    " UPDATE aegis_control SET size = %b, leaf = %b, frontier = %b, time = %b, seal = %b"
)
_FOLD_SESSION: Final = (
    "INSERT INTO aegis_session AS s (principal, session, agent, first, last, count) VALUES (%s,%s,%s,%s,%s,%s)"
    " ON CONFLICT (principal, session) DO UPDATE SET agent = greatest(s.agent, excluded.agent),"
    " last = excluded.last, count = s.count + excluded.count"
)
_INSERT_DOCUMENT: Final = (
    "INSERT INTO aegis_document (version, state, body, collection, key) VALUES (%s,%s,%s,%s,%s)"
    " ON CONFLICT DO NOTHING RETURNING 1"
)
_UPDATE_DOCUMENT: Final = (
    "UPDATE aegis_document SET version = %s, state = %s, body = %s WHERE collection = %s AND key = %s"
    " AND version = %s RETURNING 1"
)
_PUT_NODE: Final = (
    "INSERT INTO aegis_document AS d (version, state, body, collection, key) VALUES (%s,%s,%s,%s,%s)"
    " ON CONFLICT (collection, key) DO UPDATE SET version = excluded.version, body = excluded.body"
    " WHERE excluded.version > d.version"
)
_PUT_SEAL: Final = "UPDATE aegis_control SET seal = %s"
_DELETE_DOCUMENT: Final = "DELETE FROM aegis_document WHERE collection = %s AND key = %s"
_ERASE: Final = "DELETE FROM aegis_payload WHERE idx = %s RETURNING 1"
_BUMP: Final = "UPDATE aegis_control SET epoch = epoch + 1 RETURNING epoch"


class PostgresTransaction(PostgresReader):
    """`core.ports.Transaction` over the writer's connection."""

    def __init__(self, connection: Connection):
        super().__init__(connection)
        self._head = Head()

    def wait_at_most(self, milliseconds: int) -> None:
        """Wait for other writers so long, in this transaction and those that follow it."""
        self._write("SELECT set_config('lock_timeout', %s, false)", (str(milliseconds),))

    def hold(self) -> None:
        """Become the one writer; raises `StoreBusy` where another one stays for too long."""
        self._head = head_of(self.row(_HOLD))

    def head(self) -> Head:
        """Give the end of the log; nobody else can move it."""
        return self._head

    def append(self, entries: Sequence[Entry], payloads: Sequence[Payload], nodes: Sequence[Node], head: Head) -> None:
        """Add leaves at the end and move the head; its `epoch` is not written, `bump_epoch` alone moves that.

        A seal that comes with the head is written with it: a second change of the row would be a second version of it.
        Raises `StoreCorrupt` where the leaves do not continue the log.
        """
        before = self._head
        check_leaves(before.size, entries, payloads, head)
        columns = [
            *_columns(15, map(_leaf_row, entries), (0, 4, 14)),
            *_columns(4, ((one.index, one.salt, one.key, one.body) for one in payloads), (0,)),
            *_columns(3, ((one.level, one.position, one.hash) for one in nodes), (0, 1)),
        ]
        for row in _sessions_of(entries):
            self._write(_FOLD_SESSION, row)
        seal = head.seal or before.seal
        self._write(_APPEND, (*columns, Int8(head.size), head.leaf, head.frontier, Int8(head.time), seal))
        self._head = replace(head, epoch=before.epoch, seal=seal)

    def put_document(self, document: Document) -> None:
        """Write a document whose `version` is one more than the stored one; raises `StoreConflict` otherwise."""
        values = (
            document.version,
            document.state.encode(),
            document.body,
            document.collection.encode(),
            document.key.encode(),
        )
        if document.version == 1:
            changed = self.rows(_INSERT_DOCUMENT, values)
        else:
            changed = self.rows(_UPDATE_DOCUMENT, (*values, document.version - 1))
        if not changed:
            raise StoreConflict(f"a document of `{document.collection}` was changed meanwhile")

    def put_seal(self, seal: bytes, nodes: Sequence[Document]) -> Head:
        """Write the head's seal, and each node where it is later than what is stored; the head as it is then."""
        for node in nodes:
            self._write(
                _PUT_NODE, (node.version, node.state.encode(), node.body, node.collection.encode(), node.key.encode())
            )
        if seal != self._head.seal:  # else the leaves that were added brought it
            self._write(_PUT_SEAL, (seal,))
            self._head = replace(self._head, seal=seal)
        return self._head

    def delete_document(self, collection: str, key: str) -> None:
        self._write(_DELETE_DOCUMENT, (collection.encode(), key.encode()))

    def erase_payload(self, index: int) -> bool:
        """Delete payload, key and salt of a leaf."""
        return bool(self.rows(_ERASE, (index,)))

    def bump_epoch(self) -> int:
        """Move the control epoch; every process sees it once this transaction commits."""
        epoch: int = self.row(_BUMP)[0]
        self._head = replace(self._head, epoch=epoch)
        return epoch

    def _write(self, sql: str, values: Sequence[Any]) -> None:
        """Send a statement whose answer is looked at with the next one that is waited for, the commit at the latest."""
        try:
            self._connection.execute(sql.encode(), values)
        except psycopg.Error as error:
            raise wrapped(error) from error


def _columns(width: int, rows: Iterable[Sequence[Any]], numbers: Sequence[int]) -> list[list[Any]]:
    """Turn rows into columns; those at `numbers` hold integers of 64 bits or nothing."""
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
    for place in numbers:
        columns[place] = [None if value is None else Int8(value) for value in columns[place]]
    return columns


def _leaf_row(entry: Entry) -> tuple[Any, ...]:
    key = None
    if entry.kind == "decision" and entry.call_id:
        key = call_key(entry.principal, entry.session, entry.call_id)
    words = (
        entry.kind, entry.principal, entry.agent, entry.session, entry.call_id, entry.tool, entry.decision,
        entry.reason, entry.parent,
    )  # fmt: skip
    encoded = (word.encode() for word in words)
    return (entry.index, entry.leaf_hash, entry.body, entry.receipt_id.encode(), entry.time, *encoded, key)


def _sessions_of(entries: Sequence[Entry]) -> list[tuple[bytes, bytes, bytes, int, int, int]]:
    """Sum up what the entries add to each session."""
    found: dict[tuple[bytes, bytes], tuple[bytes, int, int, int]] = {}
    for entry in entries:
        if entry.session:
            key, agent = (entry.principal.encode(), entry.session.encode()), entry.agent.encode()
            before, first, _, count = found.get(key, (b"", entry.index, 0, 0))
            found[key] = (max(before, agent), first, entry.index, count + 1)
    return [(*key, *rest) for key, rest in found.items()]


def _after_fork() -> None:
    for store in list(_open_stores):
        store._after_fork()


os.register_at_fork(after_in_child=_after_fork)
