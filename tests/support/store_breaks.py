"""Somebody who writes the tables of a store past Aegis: rows of documents, columns of receipts, the whole of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg

Row = tuple[int, str, bytes]  # version, state, body


class Outside:
    """Direct access to the tables of the SQLite file or the PostgreSQL database at `place`."""

    def __init__(self, place: Path | str):
        self._place = place
        self._prefix = "" if isinstance(place, Path) else "aegis_"

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement, with `?` for values and tables without their prefix in braces; its rows."""
        sql = sql.replace("{", self._prefix).replace("}", "")
        if isinstance(self._place, Path):
            with sqlite3.connect(self._place) as connection:
                connection.execute("PRAGMA synchronous = OFF")  # no power is lost here
                rows = connection.execute(sql, values).fetchall()
            connection.close()
            return rows
        encoded = [value.encode() if isinstance(value, str) else value for value in values]
        found = self._server.execute(sql.replace("?", "%s").encode(), encoded)
        return found.fetchall() if found.description else []

    @cached_property
    def _server(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(str(self._place), autocommit=True)

    def get(self, collection: str, key: str) -> Row | None:
        rows = self.run(
            "SELECT version, state, body FROM {document} WHERE collection = ? AND key = ?", (collection, key)
        )
        if not rows:
            return None
        version, state, body = rows[0]
        return version, state.decode() if isinstance(state, bytes) else state, body

    def put(self, collection: str, key: str, row: Row | None) -> None:
        """Write that row, or none."""
        self.run("DELETE FROM {document} WHERE collection = ? AND key = ?", (collection, key))
        if row is not None:
            self.run(
                "INSERT INTO {document} (collection, key, version, state, body) VALUES (?, ?, ?, ?, ?)",
                (collection, key, *row),
            )

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        """Everything that is stored."""
        if isinstance(self._place, Path):
            names = [row[0] for row in self.run("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        else:
            names = [
                row[0]
                for row in self.run(
                    "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema()"
                )
            ]
        return {name: self.run(f'SELECT * FROM "{name}"') for name in names}

    def put_back(self, tables: dict[str, list[tuple[Any, ...]]]) -> None:
        """Make the store what it was when `tables` were read."""
        for name, rows in tables.items():
            self.run(f'DELETE FROM "{name}"')
            for row in rows:
                self.run(f'INSERT INTO "{name}" VALUES ({",".join("?" * len(row))})', row)


def _changed(outside: Outside, collection: str) -> None:
    version, state, body = row_of(outside, collection, "one")
    outside.put(collection, "one", (version, state, body + b" "))


def _moved(outside: Outside, collection: str) -> None:
    version, _, body = row_of(outside, collection, "one")
    outside.put(collection, "one", (version, "other", body))


def _deleted(outside: Outside, collection: str) -> None:
    outside.put(collection, "one", None)


def _replayed(outside: Outside, collection: str) -> None:
    outside.put(collection, "one", (1, "open", b"first of one"))


def _raised(outside: Outside, collection: str) -> None:
    _, state, body = row_of(outside, collection, "one")
    outside.put(collection, "one", (9, state, body))


def _swapped(outside: Outside, collection: str) -> None:
    one, two = row_of(outside, collection, "one"), row_of(outside, collection, "two")
    outside.put(collection, "one", two)
    outside.put(collection, "two", one)


def _copied(outside: Outside, collection: str) -> None:
    outside.put(collection, "three", row_of(outside, collection, "one"))


def row_of(outside: Outside, collection: str, key: str) -> Row:
    row = outside.get(collection, key)
    assert row is not None
    return row


# What is done to the documents `one` and `two` of a collection, and which document is then wrong, how.
BREAKS: dict[str, tuple[Callable[[Outside, str], None], str, str]] = {
    "changed": (_changed, "one", "was changed in the store"),
    "moved to another state": (_moved, "one", "was changed in the store"),
    "deleted": (_deleted, "one", "was deleted from the store"),
    "an older version put back": (_replayed, "one", "was put back in an older version"),
    "given a later version": (_raised, "one", "was changed in the store"),
    "two exchanged": (_swapped, "two", "was changed in the store"),
    "copied to another key": (_copied, "three", "was put into the store from outside"),
}
