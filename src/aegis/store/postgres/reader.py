"""Connections and reading: how one is opened and kept, and rows as one consistent view inside a transaction."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import psycopg
from psycopg import IsolationLevel
from psycopg import errors as server
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

from aegis.core.ports import Document, Entry, Head, Payload, Search, SessionRow
from aegis.errors import AegisError, InvalidCall, StoreBusy, StoreCorrupt, StoreUnavailable
from aegis.store.rows import LAST, call_key, migrations_in

# Connections: how one is opened, how long it may be waited for, and whether it still stands.

# The seam to `psycopg`: every error of the library becomes one of the store's.

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
    """Tell whether `error` leaves open what the server did: it is no answer, or one that ended the session."""
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def wrapped(error: psycopg.Error) -> AegisError:
    """Give the error that stands for `error`; its message never quotes SQL, values or the URL."""
    if isinstance(error, psycopg.DataError):
        return InvalidCall("a number is beyond 64 bits", code="out_of_range")
    for classes, meaning, message in _MEANINGS:
        if isinstance(error, classes):
            return meaning(message)
    return StoreUnavailable("the database does not answer")


ANSWER_S: Final = 10.0  # a server that is silent for so long is taken for gone
CONNECT_S: Final = 5
LOCK_S: Final = 2.0  # how long a reader waits for a table that somebody else has locked
_PREPARE_AFTER: Final = 2  # uses of a statement before the server keeps its plan

Durability = Literal["fsync", "os"]
_T = TypeVar("_T")


class Connection(psycopg.Connection[TupleRow]):
    """A connection that never waits for its server without end, and says so where it waited for nothing."""

    on_silence: Callable[[], None] | None = None

    def wait(self, gen: PQGen[_T], interval: float = 0.1, timeout: float | None = None) -> _T:
        limit = ANSWER_S if timeout is None else timeout
        until = time.monotonic() + limit
        try:
            return super().wait(gen, interval, limit)
        except psycopg.Error:
            if time.monotonic() >= until and self.on_silence is not None:
                self.on_silence()
            raise


def connect(url: str, *, durability: Durability, writer: bool, on_silence: Callable[[], None]) -> Connection:
    """Open a connection; raises the store's errors alone. `on_silence` hears of an answer that did not come."""
    try:
        connection = Connection.connect(
            url,
            connect_timeout=CONNECT_S,
            application_name="aegis",
            tcp_user_timeout=int(ANSWER_S * 1_000),
            prepare_threshold=_PREPARE_AFTER,
        )
    except psycopg.Error as error:
        if isinstance(error, server.ConnectionTimeout):
            on_silence()
        raise wrapped(error) from error
    connection.on_silence = on_silence
    try:
        connection.autocommit = True
        # A server that waits for more than its own disk (a standby) keeps doing so.
        wanted = "off" if durability == "os" else "on"
        connection.execute(
            "SELECT set_config('synchronous_commit', %s, false)"
            " WHERE %s OR current_setting('synchronous_commit') IN ('off', 'local')",
            (wanted, durability == "os"),
        )
        if not writer:  # who writes says for each transaction how long it waits
            connection.execute("SELECT set_config('lock_timeout', %s, false)", (str(int(LOCK_S * 1_000)),))
        connection.autocommit = False
        connection.isolation_level = IsolationLevel.READ_COMMITTED if writer else IsolationLevel.REPEATABLE_READ
        connection.read_only = not writer
    except psycopg.Error as error:
        connection.close()
        raise wrapped(error) from error
    return connection


def stands(connection: Connection) -> bool:
    """Tell whether an idle connection still has its server: one that ended, or was ended, has something to read."""
    if connection.closed:
        return False
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN)
    return not watch.poll(0)


# The tables, and how an older database becomes a current one: forward only, one transaction.
#
# Words are kept as their UTF-8 bytes: they sort and compare the same in every database, and hold any character.

_LOCK: Final = 0x41454749  # "AEGI": one process migrates, the others wait

MIGRATIONS: Final = migrations_in(Path(__file__).with_name("tables.sql"))


def migrate(connection: Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring the database behind `connection` to the current version, or leave it as it was.

    Raises `StoreUnavailable` for one that a newer version of Aegis wrote, or that cannot be written.
    """
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            connection.execute("CREATE TABLE IF NOT EXISTS aegis_schema (version integer NOT NULL)")
            row = connection.execute("SELECT version FROM aegis_schema").fetchone()
            version = 0 if row is None else int(row[0])
            if version > len(migrations):
                raise StoreUnavailable(
                    f"the store has schema version {version}, newer than this version of Aegis knows"
                )
            for statements in migrations[version:]:
                for statement in statements:
                    connection.execute(statement.encode())
            if row is None:
                connection.execute("INSERT INTO aegis_schema VALUES (%s)", (len(migrations),))
            elif version < len(migrations):
                connection.execute("UPDATE aegis_schema SET version = %s", (len(migrations),))
    except psycopg.Error as error:
        raise wrapped(error) from error


_CHUNK: Final = 500  # rows held in memory while streaming
_COLUMNS: Final = (
    "idx, leaf_hash, body, receipt_id, time, kind, principal, agent, session, call_id, tool, decision, reason, parent"
)
HEAD: Final = "SELECT size, leaf, frontier, time, epoch, seal FROM aegis_control"
_ENTRY: Final = f"SELECT {_COLUMNS} FROM aegis_leaf WHERE idx = %s"  # noqa: S608
_ENTRY_BY_ID: Final = f"SELECT {_COLUMNS} FROM aegis_leaf WHERE receipt_id = %s"  # noqa: S608
_ENTRIES_BY_PREFIX: Final = (
    f"SELECT {_COLUMNS} FROM aegis_leaf WHERE receipt_id >= %s AND receipt_id < %s ORDER BY receipt_id LIMIT %s"  # noqa: S608
)
_ENTRIES: Final = f"SELECT {_COLUMNS} FROM aegis_leaf WHERE idx >= %s AND idx < %s ORDER BY idx LIMIT {_CHUNK}"  # noqa: S608
_LATEST_CALL: Final = (
    "SELECT idx FROM aegis_leaf WHERE call_key = %s AND call_key IS NOT NULL AND call_id = %s AND session = %s"
    " AND principal = %s ORDER BY idx DESC LIMIT 1"
)
_LEAF_HASHES: Final = "SELECT leaf_hash FROM aegis_leaf WHERE idx >= %s AND idx < %s ORDER BY idx"
_NODE: Final = "SELECT hash FROM aegis_node WHERE level = %s AND position = %s"
_PAYLOAD: Final = "SELECT idx, salt, key, body FROM aegis_payload WHERE idx = %s"
_DOCUMENT: Final = "SELECT collection, key, version, body, state FROM aegis_document WHERE collection = %s AND key = %s"
_DOCUMENTS: Final = (
    "SELECT collection, key, version, body, state FROM aegis_document"
    " WHERE collection = %s AND key > %s ORDER BY key LIMIT %s"
)
_COLLECTIONS: Final = "SELECT DISTINCT collection FROM aegis_document ORDER BY collection"
_DOCUMENTS_IN_STATE: Final = (
    "SELECT collection, key, version, body, state FROM aegis_document"
    " WHERE collection = %s AND state = %s AND state <> '' AND key > %s ORDER BY key LIMIT %s"
)


class PostgresReader:
    """`core.ports.Reader` over one connection; usable until its transaction ends."""

    def __init__(self, connection: Connection):
        self._connection = connection

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Fetch all rows of a statement; raises the store's errors alone."""
        try:
            return self._connection.execute(sql.encode(), values, binary=True).fetchall()
        except psycopg.Error as error:
            raise wrapped(error) from error

    def row(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Fetch the only row of a statement, or `None`."""
        rows = self.rows(sql, values)
        return rows[0] if rows else None

    def head(self) -> Head:
        return head_of(self.row(HEAD))

    def entry(self, index: int) -> Entry | None:
        row = self.row(_ENTRY, (index,))
        return None if row is None else entry_of(row)

    def entry_by_id(self, receipt_id: str) -> Entry | None:
        row = self.row(_ENTRY_BY_ID, (receipt_id.encode(),))
        return None if row is None else entry_of(row)

    def entries_by_prefix(self, prefix: str, limit: int) -> list[Entry]:
        rows = self.rows(_ENTRIES_BY_PREFIX, (prefix.encode(), (prefix + LAST).encode(), limit))
        return [entry_of(row) for row in rows]

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Stream entries with `start <= index < stop`, in order, a few hundred in memory at a time."""
        while rows := self.rows(_ENTRIES, (start, stop)):
            yield from map(entry_of, rows)
            start = rows[-1][0] + 1

    def search(self, search: Search) -> list[Entry]:
        return [entry_of(row) for row in matching(self, _COLUMNS, search)]

    def sessions(self, *, before: int | None, limit: int) -> list[SessionRow]:
        return sessions(self, before, limit)

    def latest_call(self, principal: str, session: str, call_id: str) -> int | None:
        key = call_key(principal, session, call_id)
        row = self.row(_LATEST_CALL, (key, call_id.encode(), session.encode(), principal.encode()))
        return None if row is None else row[0]

    def leaf_hashes(self, start: int, stop: int) -> list[bytes]:
        return [row[0] for row in self.rows(_LEAF_HASHES, (start, stop))]

    def node(self, level: int, position: int) -> bytes | None:
        row = self.row(_NODE, (level, position))
        return None if row is None else row[0]

    def payload(self, index: int) -> Payload | None:
        row = self.row(_PAYLOAD, (index,))
        return None if row is None else Payload(index=row[0], salt=row[1], key=row[2], body=row[3])

    def document(self, collection: str, key: str) -> Document | None:
        row = self.row(_DOCUMENT, (collection.encode(), key.encode()))
        return None if row is None else document_of(row)

    def documents(self, collection: str, *, state: str = "", after: str = "", limit: int = 1_000) -> list[Document]:
        """List documents with key > `after`, ordered by key; `state` restricts where it is not empty."""
        if state:
            rows = self.rows(_DOCUMENTS_IN_STATE, (collection.encode(), state.encode(), after.encode(), max(limit, 0)))
        else:
            rows = self.rows(_DOCUMENTS, (collection.encode(), after.encode(), max(limit, 0)))
        return [document_of(row) for row in rows]

    def collections(self) -> list[str]:
        return [row[0].decode() for row in self.rows(_COLLECTIONS)]


def head_of(row: Sequence[Any] | None) -> Head:
    """Read the head in a row of `HEAD`; raises `StoreCorrupt` where there is none."""
    if row is None:
        raise StoreCorrupt("the store has no head")
    return Head(size=row[0], leaf=row[1], frontier=row[2], time=row[3], epoch=row[4], seal=row[5])


def entry_of(row: Sequence[Any]) -> Entry:
    """Make the entry of a row of `_COLUMNS`."""
    return Entry(
        index=row[0],
        leaf_hash=row[1],
        body=row[2],
        receipt_id=row[3].decode(),
        time=row[4],
        kind=row[5].decode(),
        principal=row[6].decode(),
        agent=row[7].decode(),
        session=row[8].decode(),
        call_id=row[9].decode(),
        tool=row[10].decode(),
        decision=row[11].decode(),
        reason=row[12].decode(),
        parent=row[13].decode(),
    )


def document_of(row: Sequence[Any]) -> Document:
    """Make the document of a row in the order of the statements above."""
    return Document(collection=row[0].decode(), key=row[1].decode(), version=row[2], body=row[3], state=row[4].decode())


# Finding entries by their columns, and sessions by their last entry.

_SEARCH_COLUMNS: Final = ("parent", "call_id", "session", "tool", "agent", "principal", "reason", "decision", "kind")
_MAX_LIMIT: Final = 10_000  # bounds the rows of one page
_FOREVER: Final = 2**63 - 1
# Times never run backwards along the log, so a span of time is a span of indexes.
_FIRST_AT: Final = "SELECT idx FROM aegis_leaf WHERE time >= %s ORDER BY time, idx LIMIT 1"
_SESSIONS: Final = (
    "SELECT session, principal, agent, first, last, count FROM aegis_session"
    " WHERE last < %s ORDER BY last DESC LIMIT %s"
)


def matching(reader: PostgresReader, columns: str, search: Search) -> list[Any]:
    """Find rows of `columns` of the entries that match, newest first."""
    start, stop = 0, _FOREVER if search.before is None else search.before
    if search.since is not None:
        start = _first_at(reader, search.since)
    if search.until is not None:
        stop = min(stop, _first_at(reader, search.until + 1))
    wanted = [(column, getattr(search, column)) for column in _SEARCH_COLUMNS if getattr(search, column)]
    conditions = "".join(f" AND {column} = %s" for column, _ in wanted)
    sql = f"SELECT {columns} FROM aegis_leaf WHERE idx >= %s AND idx < %s{conditions} ORDER BY idx DESC LIMIT %s"  # noqa: S608
    limit = min(max(search.limit, 0), _MAX_LIMIT)
    return reader.rows(sql, (start, stop, *(value.encode() for _, value in wanted), limit))


def _first_at(reader: PostgresReader, time: int) -> int:
    """Find the first index whose time is at least `time`."""
    found = reader.rows(_FIRST_AT, (time,))
    return found[0][0] if found else _FOREVER


def sessions(reader: PostgresReader, before: int | None, limit: int) -> list[SessionRow]:
    """List sessions by their last entry, newest first."""
    end = _FOREVER if before is None else before
    return [
        SessionRow(
            session=row[0].decode(), principal=row[1].decode(), agent=row[2].decode(),
            first=row[3], last=row[4], count=row[5],
        )
        for row in reader.rows(_SESSIONS, (end, min(max(limit, 0), _MAX_LIMIT)))
    ]  # fmt: skip
