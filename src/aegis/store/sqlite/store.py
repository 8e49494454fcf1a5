"""The store over one file: one writer, many readers, and getting up again after a fault.

One writer connection behind a lock, a pool of reader connections. They are dropped and made again
after an error, when the file was replaced, and in a forked child. A commit is one of SQLite's: begin,
write the rows, commit; what is not in a commit was never recorded.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Never

from msgspec.structs import replace

from aegis.core.ports import Document, Entry, Head, Node, Payload
from aegis.core.receipt import call_id_of
from aegis.errors import StoreBusy, StoreConflict, StoreCorrupt, StoreError, StoreUnavailable
from aegis.store.rows import call_key, check_leaves
from aegis.store.sqlite.connect import (
    Checkpointer,
    Durability,
    Identity,
    connect,
    create,
    end_redo_file,
    prepare,
    too_large,
    wrapped,
)
from aegis.store.sqlite.reader import SqliteReader, extend_index

BUSY_S: Final = 2.0  # how long a writer waits for another process
WRITER_WAIT_S: Final = 0.01  # how long SQLite itself waits while a connection is made
TURN_S: Final = 0.000_3  # between two tries to be the writer: commits take about as long, and SQLite waits for longer
FORK_WAIT_S: Final = 1.0  # how long a fork waits for a transaction of this process
INDEX_STEP: Final = 500  # entries indexed in one transaction: bounds how long an append waits for a search
INDEX_STEPS: Final = 10  # transactions of indexing that one search pays for

_open_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_held_for_fork: list[SqliteStore] = []
_abandoned: list[object] = []  # connections of a parent process: closing them here would touch its locks


class SingleWriter(ABC):
    """The side of a store that writes: one connection behind a lock, one transaction at a time."""

    is_remote: Final = False

    def __init__(self, *, busy_s: float):
        self._busy_s = busy_s
        self._closed = False
        self._seen = 0
        self._lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None

    @contextmanager
    def transaction(self, *, wait_s: float | None = None) -> Iterator[SqliteTransaction]:
        """Open an exclusive write transaction: committed durably on exit, undone when the block raises.

        `wait_s` replaces `busy_s` as the time to wait for other writers; beyond it `StoreBusy` is raised.

            (1) wait for the writers of this process
            (2) get the connection to the file that is there now, and wait for the writers of other processes
            (3) compare the end of the log with what this process committed last
            (4) commit what the block wrote, or undo it where the block raised

        Any fault drops the connection, and with it whatever was not committed.
        """
        wait_s = self._busy_s if wait_s is None else wait_s
        until = time.monotonic() + wait_s
        if not self._lock.acquire(timeout=wait_s):  # (1)
            raise StoreBusy("the store is busy with another transaction of this process")
        try:
            try:
                writer = self._begin(until)  # (2)
                transaction = self._begun(writer)
                size = transaction.head().size
                if size < self._seen:
                    self._went_back(size)  # (3)
            except BaseException:
                self._drop_writer()
                raise
            try:
                yield transaction
            except BaseException as error:
                self._undo(writer, error)
                raise
            try:
                self._commit(writer, transaction)  # (4)
            except sqlite3.Error:
                self._drop_writer()
                raise
            self._seen = transaction.head().size
        except sqlite3.Error as error:
            raise wrapped(error) from error
        finally:
            self._lock.release()

    def _begin(self, until: float) -> sqlite3.Connection:
        """Take the place of the one writer; asked for again every `TURN_S`.

        Making a connection waits too, while another process closes the file as its last user.
        """
        while True:
            try:
                writer = self._current_writer()
                writer.execute("BEGIN IMMEDIATE")
            except (StoreBusy, sqlite3.OperationalError) as error:
                busy = error if isinstance(error, StoreError) else wrapped(error)
                if not isinstance(busy, StoreBusy) or time.monotonic() >= until:
                    raise
                time.sleep(TURN_S)
            else:
                return writer

    def _undo(self, writer: sqlite3.Connection, error: BaseException) -> None:
        """Undo what was written before `error`, which is raised whatever happens here."""
        try:
            writer.execute("ROLLBACK")
        except sqlite3.Error:
            self._drop_writer()
        if isinstance(error, StoreError) and not isinstance(error, StoreConflict):
            self._drop_writer()

    @abstractmethod
    def _current_writer(self) -> sqlite3.Connection:
        """Give the writer's connection; the lock is held."""

    def _begun(self, writer: sqlite3.Connection) -> SqliteTransaction:
        return SqliteTransaction(writer)

    @abstractmethod
    def _commit(self, writer: sqlite3.Connection, transaction: SqliteTransaction) -> None:
        """Commit the open transaction; raises `sqlite3.Error`, and then it is lost."""

    def _went_back(self, size: int) -> Never:
        """Refuse a restored older log: it lacks what this process committed."""
        raise StoreCorrupt(f"the log went back from {self._seen} to {size} leaves")

    def _drop_writer(self) -> None:
        """Close the writer's connection, which undoes what is not committed."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _extend_index(self, unindexed: int) -> None:
        """Index what a search found outside of the index; it only saves time, so that failing is no fault."""
        if unindexed <= INDEX_STEP:
            return
        with suppress(StoreError):
            for _ in range(INDEX_STEPS):
                with self.transaction() as transaction:
                    left = extend_index(transaction, INDEX_STEP)
                if left < INDEX_STEP:
                    return


class SqliteStore(SingleWriter):
    """`core.ports.Store` in the file at `path`.

    `durability` says when a commit counts: `fsync` when it is on the disk, `os` when the operating
    system has it (a power cut may lose the newest entries, never tear them). `busy_s` is how long
    to wait for another process, in seconds.
    """

    def __init__(self, path: Path, *, durability: Durability = "fsync", busy_s: float = BUSY_S):
        super().__init__(busy_s=busy_s)
        self._name = str(path)
        writer = partial(connect, path, durability=durability, writer=True)
        self._connect_writer = partial(writer, busy_s=min(WRITER_WAIT_S, busy_s))
        self._connect_checkpointer = partial(writer, busy_s=busy_s)
        self._connect_reader = partial(connect, path, durability=durability, busy_s=busy_s, writer=False)
        create(path)
        end_redo_file(path)
        prepare(path, busy_s=busy_s)
        self._start_afresh()
        _open_stores.add(self)

    @contextmanager
    def reader(self) -> Iterator[SqliteReader]:
        """Open a consistent view that does not wait for writers; its connection is kept unless it failed."""
        pool = self._current_pool()
        connection = self._take(pool)
        reader = SqliteReader(connection)
        try:
            connection.execute("BEGIN")
            yield reader
        except StoreError:
            connection.close()
            raise
        except sqlite3.Error as error:
            connection.close()
            raise wrapped(error) from error
        except BaseException:  # of whoever looked: the view itself is sound
            with suppress(sqlite3.Error):
                self._give_back(connection, pool)
            raise
        try:
            self._give_back(connection, pool)
        except sqlite3.Error as error:
            raise wrapped(error) from error
        self._extend_index(reader.unindexed)

    def _give_back(self, connection: sqlite3.Connection, pool: list[sqlite3.Connection]) -> None:
        """End a view, and give its connection to the pool that it is from; raises `sqlite3.Error`, and closes it."""
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            connection.close()
            raise
        if self._closed or pool is not self._pool:
            connection.close()
        else:
            pool.append(connection)

    def epoch(self) -> int:
        """Read the current control epoch, as the last commit of any process left it."""
        pool = self._current_pool()
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
        self._closed = True
        if not self._lock.acquire(timeout=self._busy_s):
            raise StoreUnavailable("a transaction of this store is still open")
        try:
            self._checkpointer.stop()  # nobody else can start one while the lock is held
            self._drop_readers()
            self._drop_writer()
        finally:
            self._lock.release()

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._writer = None
        self._writer_file: Identity | None = None
        self._pool: list[sqlite3.Connection] = []
        self._pool_file: Identity | None = None
        self._checkpointer = Checkpointer(self._connect_checkpointer)

    def _after_fork(self) -> None:
        _abandoned.append((self._writer, self._pool, self._checkpointer))
        self._start_afresh()

    def _current_file(self) -> Identity:
        """Tell which file stands at the path now; raises `StoreUnavailable` where there is none."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        try:
            found = os.stat(self._name)  # noqa: PTH116  the cheapest, on every transaction
        except OSError as error:
            raise StoreUnavailable(f"the store's file cannot be found: {error.strerror}") from error
        return found.st_dev, found.st_ino

    def _current_writer(self) -> sqlite3.Connection:
        """Give the writer's connection to the file at the path; the lock is held."""
        found = self._current_file()
        if self._writer is None or found != self._writer_file:
            self._drop_writer()
            self._writer = self._connect_writer()
            self._writer.execute("PRAGMA busy_timeout = 0")
            self._writer_file = found
        return self._writer

    def _commit(self, writer: sqlite3.Connection, transaction: SqliteTransaction) -> None:
        writer.execute("COMMIT")
        self._checkpointer.committed(writer, transaction.written, erased=transaction.erased)

    def _current_pool(self) -> list[sqlite3.Connection]:
        """Give the pool of reader connections to the file at the path."""
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


# Writing rows inside the one exclusive transaction; the hot path is a handful of statements.

_INSERT_LEAF: Final = (
    "INSERT INTO leaf (idx, leaf_hash, receipt_id, time, kind, principal, agent, session, call_id, tool, decision,"
    " reason, parent, call_key, frontier, body, salt, key, payload, seal)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
_INSERT_NODE: Final = "INSERT INTO node (level, position, hash) VALUES (?,?,?)"
_INSERT_DOCUMENT: Final = (
    "INSERT INTO document (version, state, body, collection, key) VALUES (?,?,?,?,?) ON CONFLICT DO NOTHING"
)
_UPDATE_DOCUMENT: Final = (
    "UPDATE document SET version = ?, state = ?, body = ? WHERE collection = ? AND key = ? AND version = ?"
)
_PUT_NODE: Final = (
    "INSERT INTO document (version, state, body, collection, key) VALUES (?,?,?,?,?) ON CONFLICT (collection, key)"
    " DO UPDATE SET version = excluded.version, state = excluded.state, body = excluded.body"
    " WHERE excluded.version > version"
)
_DELETE_DOCUMENT: Final = "DELETE FROM document WHERE collection = ? AND key = ?"
_ERASE: Final = "UPDATE leaf SET salt = NULL, key = NULL, payload = NULL WHERE idx = ? AND key IS NOT NULL"
_NO_PAYLOAD: Final = (None, None, None)
_BUMP: Final = "UPDATE control SET epoch = epoch + 1 RETURNING epoch"


class SqliteTransaction(SqliteReader, eq=False):
    """`core.ports.Transaction` over the writer's connection."""

    written: int = 0  # rows
    erased: bool = False

    def append(self, entries: Sequence[Entry], payloads: Sequence[Payload], nodes: Sequence[Node], head: Head) -> None:
        """Add leaves at the end and move the head, with a seal that it has; `bump_epoch` alone writes its `epoch`.

        Raises `StoreCorrupt` where the leaves do not continue the log.
        """
        before = self._head or self.head()
        check_leaves(before.size, entries, payloads, head)
        if head.epoch != before.epoch or not head.seal:
            head = replace(head, epoch=before.epoch, seal=head.seal or before.seal)
        rows: list[Sequence[Any]] = []
        bodies = iter(payloads)
        payload = next(bodies, None)
        for entry in entries:
            index = entry.index
            last = index == head.size - 1
            sealed: tuple[bytes | None, ...] = _NO_PAYLOAD
            if payload is not None and payload.index == index:
                sealed, payload = (payload.salt, payload.key, payload.body), next(bodies, None)
            key, call_id = None, entry.call_id
            if entry.kind == "decision" and call_id and call_id != call_id_of(entry.receipt_id):
                key = call_key(entry.principal, entry.session, call_id)
            rows.append((
                index, entry.leaf_hash, entry.receipt_id, entry.time, entry.kind, entry.principal, entry.agent,
                entry.session, call_id, entry.tool, entry.decision, entry.reason, entry.parent, key,
                head.frontier if last else None, entry.body, *sealed, head.seal if last else None,
            ))  # fmt: skip
        if len(rows) == 1:
            self._change(_INSERT_LEAF, rows[0])
        else:
            self._write(_INSERT_LEAF, rows)
        if nodes:
            self._write(_INSERT_NODE, [(node.level, node.position, node.hash) for node in nodes])
        self._head = head

    def put_document(self, document: Document) -> None:
        """Write a document whose `version` is one more than the stored one; raises `StoreConflict` otherwise."""
        values = _document_row(document)
        if document.version == 1:
            changed = self._change(_INSERT_DOCUMENT, values)
        else:
            changed = self._change(_UPDATE_DOCUMENT, (*values, document.version - 1))
        if not changed:
            raise StoreConflict(f"a document of `{document.collection}` was changed meanwhile")

    def put_seal(self, seal: bytes, nodes: Sequence[Document]) -> Head:
        """Write the head's seal, and each node where it is later than what is stored; the head as it is then."""
        if nodes:
            self._write(_PUT_NODE, [_document_row(node) for node in nodes])
        head = self.head()
        if seal == head.seal:  # the leaves that were added brought it
            return head
        if head.size:
            self._change("UPDATE leaf SET seal = ? WHERE idx = ?", (seal, head.size - 1))
        else:
            self._change("UPDATE control SET seal = ?", (seal,))
        self._head = replace(head, seal=seal)
        return self._head

    def delete_document(self, collection: str, key: str) -> None:
        self._change(_DELETE_DOCUMENT, (collection, key))

    def erase_payload(self, index: int) -> bool:
        """Delete payload, key and salt of a leaf; their pages are overwritten with zeros."""
        erased = self._change(_ERASE, (index,)) > 0
        self.erased = self.erased or erased
        return erased

    def bump_epoch(self) -> int:
        """Move the control epoch; every process sees it once this transaction commits."""
        before = self.head()
        epoch: int = self.row(_BUMP)[0]
        self.written += 1
        self._head = replace(before, epoch=epoch)
        return epoch

    def _write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        try:
            self.written += self._connection.executemany(sql, rows).rowcount
        except sqlite3.Error as error:
            raise wrapped(error) from error
        except OverflowError as error:
            raise too_large() from error

    def _change(self, sql: str, values: Sequence[Any]) -> int:
        try:
            changed = self._connection.execute(sql, values).rowcount
        except sqlite3.Error as error:
            raise wrapped(error) from error
        except OverflowError as error:
            raise too_large() from error
        self.written += changed
        return changed


def _document_row(document: Document) -> tuple[int, str, bytes, str, str]:
    return document.version, document.state, document.body, document.collection, document.key


def _before_fork() -> None:
    """Wait for open transactions: a child inherits what SQLite knows of the locks of this process."""
    for store in list(_open_stores):
        if store._lock.acquire(timeout=FORK_WAIT_S):
            _held_for_fork.append(store)


def _after_fork_in_parent() -> None:
    while _held_for_fork:
        _held_for_fork.pop()._lock.release()


def _after_fork() -> None:
    _held_for_fork.clear()
    for store in list(_open_stores):
        store._after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)
