"""Connections: how one is opened, how long it may be waited for, and whether it still stands."""

from __future__ import annotations

import select
from typing import Final, Literal, TypeVar

import psycopg
from psycopg import IsolationLevel
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

from aegis.stores.postgres.errors import wrapped

ANSWER_S: Final = 10.0  # a server that is silent for so long is taken for gone
CONNECT_S: Final = 5
_PREPARE_AFTER: Final = 2  # uses of a statement before the server keeps its plan

Durability = Literal["fsync", "os"]
_T = TypeVar("_T")


class Connection(psycopg.Connection[TupleRow]):
    """A connection that never waits for its server without end."""

    def wait(self, gen: PQGen[_T], interval: float = 0.1, timeout: float | None = None) -> _T:
        return super().wait(gen, interval, ANSWER_S if timeout is None else timeout)


def connect(url: str, *, durability: Durability, writer: bool) -> Connection:
    """An open connection; raises the store's errors alone."""
    try:
        connection = Connection.connect(
            url,
            connect_timeout=CONNECT_S,
            application_name="aegis",
            tcp_user_timeout=int(ANSWER_S * 1_000),
            prepare_threshold=_PREPARE_AFTER,
        )
    except psycopg.Error as error:
        raise wrapped(error) from error
    try:
        connection.autocommit = True
        # A server that waits for more than its own disk (a standby) goes on doing so.
        wanted = "off" if durability == "os" else "on"
        connection.execute(
            "SELECT set_config('synchronous_commit', %s, false)"
            " WHERE %s OR current_setting('synchronous_commit') IN ('off', 'local')",
            (wanted, durability == "os"),
        )
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
