"""Connections: how one is opened, how long it may be waited for, and whether it still stands."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import psycopg
from psycopg import IsolationLevel
from psycopg import errors as server
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

from aegis.stores.postgres.errors import wrapped

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
    """An open connection; raises the store's errors alone. `on_silence` hears of an answer that did not come."""
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
        # A server that waits for more than its own disk (a standby) goes on doing so.
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
    """Whether an idle connection still has its server: one that ended, or was ended, has something to read."""
    if connection.closed:
        return False
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN)
    return not watch.poll(0)
