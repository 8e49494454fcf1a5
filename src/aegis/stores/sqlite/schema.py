"""The tables, and how an older file becomes a current one: forward only, one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from aegis.errors import StoreCorrupt, StoreUnavailable

APPLICATION_ID: Final = 0x41454749  # "AEGI": tells our files from others

# The n-th entry turns version n into version n + 1. Entries are never changed, only added.
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        # One row: the end of the log.
        """CREATE TABLE head (
            id INTEGER PRIMARY KEY CHECK (id = 0),
            size INTEGER NOT NULL, leaf BLOB NOT NULL, frontier BLOB NOT NULL,
            time INTEGER NOT NULL, epoch INTEGER NOT NULL
        ) STRICT""",
        "INSERT INTO head VALUES (0, 0, x'', x'', 0, 0)",
        # `call_key` is set for decisions alone; the leading half is the session's, so that the
        # entries of a session share pages of the index.
        """CREATE TABLE leaf (
            idx INTEGER PRIMARY KEY,
            leaf_hash BLOB NOT NULL, receipt_id TEXT NOT NULL, time INTEGER NOT NULL,
            kind TEXT NOT NULL, principal TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
            call_id TEXT NOT NULL, tool TEXT NOT NULL, decision TEXT NOT NULL, reason TEXT NOT NULL,
            parent TEXT NOT NULL, call_key INTEGER, body BLOB NOT NULL
        ) STRICT""",
        "CREATE INDEX leaf_call ON leaf (call_key) WHERE call_key IS NOT NULL",
        "CREATE INDEX leaf_receipt ON leaf (receipt_id)",
        """CREATE TABLE payload (
            idx INTEGER PRIMARY KEY, salt BLOB NOT NULL, key BLOB NOT NULL, body BLOB NOT NULL
        ) STRICT""",
        """CREATE TABLE node (
            level INTEGER NOT NULL, position INTEGER NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (level, position)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE document (
            collection TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL,
            body BLOB NOT NULL, PRIMARY KEY (collection, key)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX document_state ON document (collection, state, key) WHERE state <> ''",
        # The search index. It is filled by those who search, up to `indexed`; appending never waits for it.
        """CREATE TABLE term (
            term INTEGER NOT NULL, idx INTEGER NOT NULL, PRIMARY KEY (term, idx)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE session (
            principal TEXT NOT NULL, session TEXT NOT NULL, agent TEXT NOT NULL, first INTEGER NOT NULL,
            last INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (principal, session)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX session_last ON session (last)",
        "CREATE TABLE progress (id INTEGER PRIMARY KEY CHECK (id = 0), indexed INTEGER NOT NULL) STRICT",
        "INSERT INTO progress VALUES (0, 0)",
    ),
    (
        # Everything that belongs to a leaf stands in its row, so that a commit writes few pages. `frontier` is
        # set in the last row of a commit; with it the last row of all is the end of the log. What can be large
        # stands last.
        """CREATE TABLE leaf_of_2 (
            idx INTEGER PRIMARY KEY,
            leaf_hash BLOB NOT NULL, receipt_id TEXT NOT NULL, time INTEGER NOT NULL,
            kind TEXT NOT NULL, principal TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
            call_id TEXT NOT NULL, tool TEXT NOT NULL, decision TEXT NOT NULL, reason TEXT NOT NULL,
            parent TEXT NOT NULL, call_key INTEGER, frontier BLOB, body BLOB NOT NULL,
            salt BLOB, key BLOB, payload BLOB
        ) STRICT""",
        """INSERT INTO leaf_of_2
            SELECT l.idx, l.leaf_hash, l.receipt_id, l.time, l.kind, l.principal, l.agent, l.session, l.call_id,
                l.tool, l.decision, l.reason, l.parent, l.call_key, iif(l.idx = h.size - 1, h.frontier, NULL),
                l.body, p.salt, p.key, p.body
            FROM head h CROSS JOIN leaf l LEFT JOIN payload p ON p.idx = l.idx""",
        # The only row that is not of a leaf: it counts control changes.
        "CREATE TABLE control (id INTEGER PRIMARY KEY CHECK (id = 0), epoch INTEGER NOT NULL) STRICT",
        "INSERT INTO control SELECT 0, epoch FROM head",
        "DROP TABLE payload",
        "DROP TABLE head",
        "DROP TABLE leaf",
        "ALTER TABLE leaf_of_2 RENAME TO leaf",
        "CREATE INDEX leaf_call ON leaf (call_key) WHERE call_key IS NOT NULL",
        "CREATE INDEX leaf_receipt ON leaf (receipt_id)",
    ),
    (
        # What authenticates the head and every document; empty until somebody with the home's keys has sealed them.
        "ALTER TABLE control ADD COLUMN seal BLOB NOT NULL DEFAULT x''",
    ),
)
SCHEMA_VERSION: Final = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring the file behind `connection` to the current version, or leave it as it was.

    Raises `StoreCorrupt` for a file of another application and `StoreUnavailable` for one that a
    newer version of Aegis wrote. Several processes may call this at once.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)
        if version > len(migrations):
            raise StoreUnavailable(f"the store has schema version {version}, newer than this version of Aegis knows")
        for statements in migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        if version < len(migrations):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def check_version(connection: sqlite3.Connection, expected: int = SCHEMA_VERSION) -> None:
    """Guarantee that an open file is one of ours and current; raises `StoreCorrupt` or `StoreUnavailable`."""
    version = _version(connection)
    if version != expected:
        raise StoreUnavailable(f"the store has schema version {version}, and this version of Aegis needs {expected}")


def _version(connection: sqlite3.Connection) -> int:
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    if (application, version, tables) != (0, 0, 0) and application != APPLICATION_ID:
        raise StoreCorrupt("the file is not a store of Aegis")
    return version
