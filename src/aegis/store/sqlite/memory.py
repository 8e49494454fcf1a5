"""The same tables in memory: for tests, demonstrations and gates whose log ends with their process.

A database in memory has no views beside a writer, so there are two of them. Views read the one in front; a
transaction writes to the one behind, and its commit puts that in front. The other one catches up before the next
transaction, by the same statements. Where a view still reads it then, it is left to that view, and a copy of the
one in front takes its place.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import field

from aegis.errors import StoreUnavailable
from aegis.store.sqlite.connect import migrate, wrapped
from aegis.store.sqlite.reader import SqliteReader
from aegis.store.sqlite.store import BUSY_S, SingleWriter, SqliteTransaction

Statement = tuple[str, Sequence[Any]]


class MemoryStore(SingleWriter):
    """`core.ports.Store` in this process; `busy_s` is how long a writer waits for another one, in seconds.

    It belongs to the process that made it, and is unavailable in a forked child.
    """

    def __init__(self, *, busy_s: float = BUSY_S):
        super().__init__(busy_s=busy_s)
        self._process = os.getpid()
        self._turn = threading.Lock()  # around what is in front, and who reads what
        self._front = _Database()
        migrate(self._front.connection)
        self._behind: _Database | None = None
        self._statements: list[Statement] = []  # of the open transaction
        self._missed: list[Statement] = []  # of the last commit: what the one behind has to catch up with
        self._epoch = 0

    @contextmanager
    def reader(self) -> Iterator[MemoryReader]:
        """Open a consistent view that does not wait for writers."""
        with self._turn:
            self._check_open()
            database = self._front
            database.views += 1
        reader = MemoryReader(database.connection, lock=database.lock)
        try:
            yield reader
        finally:
            with self._turn:
                database.views -= 1
        self._extend_index(reader.unindexed)

    def epoch(self) -> int:
        """Read the current control epoch; nobody else can move it."""
        self._check_open()
        return self._epoch

    def close(self) -> None:
        """Forget everything; afterwards every method raises `StoreUnavailable`."""
        self._closed = True
        self._behind, self._front, self._missed = None, _Database(), []  # open views keep what they read

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if os.getpid() != self._process:  # both processes would continue the same log, each in its own way
            raise StoreUnavailable("a log in memory does not cross a fork")

    def _current_writer(self) -> sqlite3.Connection:
        """Give the database behind, as far as the one in front."""
        self._check_open()
        behind = self._behind
        with self._turn:  # no view can begin on it any more
            is_read = behind is not None and behind.views > 0
        if behind is None or is_read or not behind.catch_up(self._missed):
            behind = self._behind = self._front.copy()
        self._missed = []
        return behind.connection

    def _begun(self, writer: sqlite3.Connection) -> SqliteTransaction:
        transaction = MemoryTransaction(writer)
        self._statements = transaction.statements
        return transaction

    def _commit(self, writer: sqlite3.Connection, transaction: SqliteTransaction) -> None:
        writer.execute("COMMIT")
        with self._turn:
            if self._behind is None:
                raise StoreUnavailable("the store is closed")
            self._front, self._behind, self._missed = self._behind, self._front, self._statements
            self._epoch = transaction.head().epoch

    def _drop_writer(self) -> None:
        self._behind = None


class MemoryTransaction(SqliteTransaction, eq=False):
    """`core.ports.Transaction` that notes every statement that writes."""

    statements: list[Statement] = field(default_factory=list)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        if not sql.startswith("SELECT"):
            self.statements.append((sql, values))
        return super().rows(sql, values)

    def _write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            self._change(sql, row)

    def _change(self, sql: str, values: Sequence[Any]) -> int:
        self.statements.append((sql, values))
        return super()._change(sql, values)


class MemoryReader(SqliteReader, eq=False):
    """`core.ports.Reader` as of one commit; `lock` is that of its connection."""

    lock: threading.Lock = field(default_factory=threading.Lock)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self.lock:
            return super().rows(sql, values)


class _Database:
    """One database, which `views` read; several threads share its connection, in turn."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.views = 0
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA trusted_schema = OFF")
        self.connection.execute("PRAGMA temp_store = MEMORY")

    def copy(self) -> _Database:
        """Another one with the same content."""
        made = _Database()
        try:
            with self.lock:
                self.connection.backup(made.connection)
        except sqlite3.Error as error:
            raise wrapped(error) from error
        return made

    def catch_up(self, statements: Sequence[Statement]) -> bool:
        """Tell whether it could be changed by the statements; where it could not, it is of no use any more."""
        try:
            self.connection.execute("BEGIN")
            for sql, values in statements:
                self.connection.execute(sql, values)
            self.connection.execute("COMMIT")
        except sqlite3.Error:
            return False
        return True
