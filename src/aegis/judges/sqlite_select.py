"""Answers one SELECT on `/data/database`. Runs alone, inside a sandbox, on the standard library."""

import json
import sqlite3
import sys
from typing import Any

MAX_ROWS = 1_000
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def answer(query: str) -> dict[str, Any]:
    """The rows of one SELECT; the authorizer refuses everything else."""
    connection = sqlite3.connect("file:/data/database?mode=ro&immutable=1", uri=True)
    connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
    cursor = connection.execute(query)
    rows = cursor.fetchmany(MAX_ROWS + 1)
    columns = [column[0] for column in cursor.description or ()]
    return {"columns": columns, "rows": rows[:MAX_ROWS], "cut": len(rows) > MAX_ROWS}


def main() -> None:
    """One query in, one answer out."""
    try:
        said = answer(json.load(sys.stdin)["query"])
    except (sqlite3.Error, sqlite3.Warning) as error:
        said = {"error": str(error)}
    json.dump(said, sys.stdout, default=repr)


main()
