"""The tables, and how an older database becomes a current one: forward only, one transaction.

Words are kept as their UTF-8 bytes: they sort and compare the same in every database, and hold any character.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import psycopg

from aegis.errors import StoreUnavailable
from aegis.stores.postgres.connect import Connection
from aegis.stores.postgres.errors import wrapped

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
