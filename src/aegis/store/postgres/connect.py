"""Connections: how one is opened, how long it may be waited for, and whether it still stands."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

import psycopg
from psycopg import IsolationLevel
from psycopg import errors as server
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

from aegis.errors import AegisError, InvalidCall, StoreBusy, StoreCorrupt, StoreUnavailable

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
SEARCHED: Final = ("parent", "call_id", "session", "tool", "agent", "reason", "decision", "kind")

# The n-th entry turns version n into version n + 1. Entries are never changed, only added.
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        # One row: the end of the log. Who holds it is the one writer.
        """CREATE TABLE aegis_control (
            id integer PRIMARY KEY CHECK (id = 0), size bigint NOT NULL, leaf bytea NOT NULL,
            frontier bytea NOT NULL, time bigint NOT NULL, epoch bigint NOT NULL
        )""",
        "INSERT INTO aegis_control VALUES (0, 0, '', '', 0, 0)",
        """CREATE TABLE aegis_leaf (
            idx bigint PRIMARY KEY, leaf_hash bytea NOT NULL, body bytea NOT NULL, receipt_id bytea NOT NULL,
            time bigint NOT NULL, kind bytea NOT NULL, principal bytea NOT NULL, agent bytea NOT NULL,
            session bytea NOT NULL, call_id bytea NOT NULL, tool bytea NOT NULL, decision bytea NOT NULL,
            reason bytea NOT NULL, parent bytea NOT NULL, call_key bigint
        )""",
        "CREATE INDEX aegis_leaf_receipt ON aegis_leaf (receipt_id)",
        "CREATE INDEX aegis_leaf_call ON aegis_leaf (call_key, idx) WHERE call_key IS NOT NULL",
        "CREATE INDEX aegis_leaf_time ON aegis_leaf (time, idx)",
        *(f"CREATE INDEX aegis_leaf_{column} ON aegis_leaf ({column}, idx)" for column in SEARCHED),
        """CREATE TABLE aegis_payload (
            idx bigint PRIMARY KEY, salt bytea NOT NULL, key bytea NOT NULL, body bytea NOT NULL
        )""",
        """CREATE TABLE aegis_node (
            level integer NOT NULL, position bigint NOT NULL, hash bytea NOT NULL, PRIMARY KEY (level, position)
        )""",
        """CREATE TABLE aegis_document (
            collection bytea NOT NULL, key bytea NOT NULL, version bigint NOT NULL, state bytea NOT NULL,
            body bytea NOT NULL, PRIMARY KEY (collection, key)
        )""",
        "CREATE INDEX aegis_document_state ON aegis_document (collection, state, key) WHERE state <> ''",
        """CREATE TABLE aegis_session (
            principal bytea NOT NULL, session bytea NOT NULL, agent bytea NOT NULL, first bigint NOT NULL,
            last bigint NOT NULL, count bigint NOT NULL, PRIMARY KEY (principal, session)
        )""",
        "CREATE INDEX aegis_session_last ON aegis_session (last)",
    ),
    (
        # What authenticates the head and every document; empty until somebody with the home's keys has sealed them.
        "ALTER TABLE aegis_control ADD COLUMN seal bytea NOT NULL DEFAULT ''",
    ),
)


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
