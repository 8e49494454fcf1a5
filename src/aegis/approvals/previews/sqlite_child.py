"""Tries one SQL statement on a copy of a SQLite database. Runs alone, inside a sandbox, on the standard library.

Reads `{"database", "statement", "removed"}` from its input and writes what happened to its output. The
transaction is rolled back, and the copy is thrown away by whoever made it.
"""

import json
import sqlite3
import sys
from typing import Any

MAX_ROWS = 100_000
_DENIED = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT}
_WORDS = ("insert", "update", "delete")


def quoted(name: str, mark: str = '"') -> str:
    """A name as SQL spells it, or a text where `mark` is an apostrophe."""
    return mark + name.replace(mark, mark * 2) + mark


def count_touches(connection: sqlite3.Connection, tables: list[str]) -> list[str]:
    """Count what the statement does, what its triggers do and what cascades from it; names what takes no trigger."""
    connection.execute("CREATE TEMP TABLE aegis_touched (name TEXT, word TEXT)")
    uncounted = []
    for position, name in enumerate(tables):
        for word in _WORDS:
            trigger = f"CREATE TEMP TRIGGER aegis_{position}_{word} AFTER {word} ON main.{quoted(name)} "
            row = f"({quoted(name, chr(39))}, '{word}')"
            body = f"BEGIN INSERT INTO aegis_touched VALUES {row}; END"  # noqa: S608 - names are quoted
            try:
                connection.execute(trigger + body)
            except sqlite3.Error:  # virtual tables and their shadows
                uncounted.append(name)
                break
    return uncounted


def plan_of(connection: sqlite3.Connection, statement: str) -> list[str]:
    """The plan in SQLite's words; what has none has none."""
    try:
        return [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + statement)]
    except sqlite3.Error:
        return []


def look(database: str, statement: str, removed: str) -> dict[str, Any]:
    """Rows that the statement touched, by table, and the plan."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    tables = [name for name in tables if not name.startswith("sqlite_")]
    touched: dict[str, dict[str, int]] = {}
    if removed in tables:
        count = "SELECT count(*) FROM main." + quoted(removed)  # noqa: S608 - and known
        touched[removed] = {"removed": connection.execute(count).fetchone()[0]}
    plan = plan_of(connection, statement)
    uncounted = count_touches(connection, tables)
    connection.execute("BEGIN IMMEDIATE")
    connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action in _DENIED else sqlite3.SQLITE_OK)
    cursor, rows = connection.execute(statement), 0
    while rows < MAX_ROWS and cursor.fetchone() is not None:
        rows += 1
    connection.set_authorizer(None)
    if not connection.in_transaction:
        raise RuntimeError("the statement ended the transaction")
    for name, word, count in connection.execute("SELECT name, word, count(*) FROM aegis_touched GROUP BY 1, 2"):
        touched.setdefault(name, {})[word] = count
    columns = [column[0] for column in cursor.description or ()]
    cursor.close()
    connection.execute("ROLLBACK")
    return {
        "rows": rows,
        "rows_cut": rows == MAX_ROWS,
        "columns": columns,
        "touched": touched,
        "uncounted": uncounted,
        "plan": plan,
    }


def main() -> None:
    """One statement in, one answer out."""
    asked = json.load(sys.stdin)
    try:
        answer = look(asked["database"], asked["statement"], asked["removed"])
    except (sqlite3.Error, RuntimeError) as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


main()
