"""What one SQL statement would touch, tried on the database that the operator set aside for previews."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

import orjson
from sqlglot import exp

from aegis.core.approval import Looked, Preview, PreviewRules, no_preview
from aegis.detect.sql import SqlUnparsedError, SqlUnreadError, analyse_sql, parse_sql
from aegis.errors import KeyFileError, SandboxUnavailable
from aegis.keys.references import read_secret
from aegis.sandbox import Box, Limits, Mount, run, unavailable
from aegis.sandbox.command import python_line

# Which SQL may be tried at all: one parsed statement of an allowed kind, by its tree and not by its words.

Engine = Literal["sqlite", "postgres"]

_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (exp.Query, "select"),
    (exp.Insert, "insert"),
    (exp.Update, "update"),
    (exp.Delete, "delete"),
    (exp.Merge, "merge"),
    (exp.Create, "create"),
    (exp.Alter, "alter"),
    (exp.Drop, "drop"),
    (exp.TruncateTable, "truncate"),
)
STATEMENTS: Final = tuple(name for _, name in _KINDS)
# What leads out of the database or out of the transaction, wherever it stands in a statement.
_NEVER: Final = (exp.Command, exp.Copy, exp.Transaction, exp.Commit, exp.Rollback, exp.Set, exp.Pragma, exp.Attach)


class StatementRefused(Exception):
    """The statement is not tried; the message says why, without any of its text."""


def check_statement(text: str, engine: Engine, allowed: frozenset[str]) -> tuple[str, str]:
    """The kind of the one statement in `text`, and the name of the table that it removes, if it removes one.

    Raises `StatementRefused` where it is not exactly one, does not parse, or is not of a kind that is allowed.
    """
    # (1) Only what is read as a whole.
    try:
        statements = parse_sql(text, engine)
    except SqlUnreadError as error:
        raise StatementRefused("the statement is too long to be read, or too much") from error
    except SqlUnparsedError as error:
        raise StatementRefused("the statement cannot be parsed") from error
    # (2) One statement, so that no `COMMIT` hides behind it.
    if len(statements) != 1:
        raise StatementRefused("there is not exactly one statement")
    statement = statements[0]
    # (3) Of an allowed kind, with nothing inside that leads out.
    kind = next((name for base, name in _KINDS if isinstance(statement, base)), "")
    if kind not in allowed:
        raise StatementRefused(f"statements of the kind `{kind or 'other'}` are not tried")
    if any(isinstance(node, _NEVER) for node in statement.walk()):
        raise StatementRefused("the statement holds something that leads out of a transaction")
    if any(signal == "sql.file" for signal, _ in analyse_sql(text).signals):
        raise StatementRefused("the statement reads or writes files, or speaks to another server")
    removed = statement.find(exp.Table) if isinstance(statement, (exp.Drop, exp.TruncateTable)) else None
    return kind, "" if removed is None else removed.name


# One SQL statement on a PostgreSQL database for previews, in a transaction that is rolled back.
#
# The role must not be able to step out: a superuser, a role that replicates or one that may run programs and read
# files on the server is refused. The extended protocol carries one statement only, and that the transaction is
# still the same one is checked before anything is believed.

MAX_ROWS: Final = 100_000
_MISSING: Final = 'PostgreSQL support is not installed: pip install "aegis-guard[postgres]"'
_RIGHTS: Final = """
SELECT rolsuper OR rolreplication OR rolcreaterole OR rolcreatedb OR rolbypassrls
    OR pg_has_role(current_user, 'pg_execute_server_program', 'member')
    OR pg_has_role(current_user, 'pg_read_server_files', 'member')
    OR pg_has_role(current_user, 'pg_write_server_files', 'member')
FROM pg_roles WHERE rolname = current_user
"""
_TOUCHED: Final = """
SELECT schemaname || '.' || relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_xact_user_tables
WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 ORDER BY 1
"""
_PLANNED: Final = frozenset({"select", "insert", "update", "delete", "merge"})


def try_on_postgres(rules: PreviewRules, url: str, text: str, *, kind: str, removed: str) -> dict[str, Any]:
    """What `text` does inside of a transaction that never ends well; raises `StatementRefused` without trying it."""
    try:
        import psycopg
    except ImportError as error:
        raise StatementRefused(_MISSING) from error
    try:
        connection = psycopg.connect(url, autocommit=False, connect_timeout=max(1, int(rules.seconds)))
    except psycopg.Error as error:
        raise StatementRefused("the database for previews cannot be reached") from error
    try:
        # (1) The role cannot leave the transaction by other means.
        rights = connection.execute(_RIGHTS).fetchone()
        if rights is None or rights[0]:
            raise StatementRefused("the role for previews has rights that a rollback does not undo")
        # (2) Nothing is waited for longer than the preview may take.
        ms = int(rules.seconds * 1_000)
        connection.execute(f"SET LOCAL statement_timeout = {ms}")
        connection.execute(f"SET LOCAL lock_timeout = {max(1, ms // 2)}")
        before = connection.execute("SELECT txid_current()").fetchone()
        lost = _count(connection, removed) if removed else None
        plan: list[str] = []
        if kind in _PLANNED:
            plan = [str(row[0]) for row in connection.execute(("EXPLAIN " + text).encode(), prepare=True)]
        # (3) One statement: a prepared one goes by the extended protocol, which takes no second one.
        with connection.cursor() as cursor:
            cursor.execute(text.encode(), prepare=True)
            columns = [column.name for column in cursor.description or ()]
            rows = len(cursor.fetchmany(MAX_ROWS)) if cursor.description else 0
        # (4) What it touched, and that it is still the same transaction.
        touched = {
            name: {word: count for word, count in zip(("insert", "update", "delete"), counts, strict=True) if count}
            for name, *counts in connection.execute(_TOUCHED)
        }
        if lost is not None:
            touched.setdefault(removed, {})["removed"] = lost
        if connection.execute("SELECT txid_current()").fetchone() != before:
            return {"error": "the statement ended the transaction"}
        return {"rows": rows, "rows_cut": rows == MAX_ROWS, "columns": columns, "touched": touched, "plan": plan}
    except psycopg.Error as error:
        return {"error": f"the database refused it: `{type(error).__name__}`"}
    finally:
        connection.rollback()
        connection.close()


def _count(connection: Any, table: str) -> int:
    from psycopg import sql

    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))).fetchone()
    return int(row[0])


MAX_DATABASE: Final = 1_073_741_824  # bytes of a SQLite file that is copied for one look
_PAGES: Final = 1_024  # copied at a time, so that writers of the original are not held up
_CHILD: Final = Path(__file__).with_name("sqlite_child.py")


def statement(look: Looked, text: str) -> Preview:
    """The rows per table that `text` would touch, the rows that it would give, and its plan."""
    try:
        database = _database(look.rules.database)
    except KeyFileError as error:
        return no_preview(str(error), "sql")
    if not database:
        return no_preview("no database for previews is configured", "sql")
    engine: Engine = "sqlite" if database.startswith("sqlite:") else "postgres"
    try:
        kind, removed = check_statement(text, engine, look.rules.statements)
        if engine == "sqlite":
            effect = _on_sqlite(look, database.removeprefix("sqlite:///"), text, removed)
        else:
            effect = try_on_postgres(look.rules, database, text, kind=kind, removed=removed)
    except (StatementRefused, SandboxUnavailable) as refused:
        return no_preview(str(refused), "sql")
    if "error" in effect:
        return Preview(state="failed", kind="sql", why=f"the preview failed: {effect['error']}")
    return Preview(state="done", kind="sql", effect={"engine": engine, "statement": kind, **effect})


def _database(named: str) -> str:
    """The URL of the database: written in the configuration, or found where a reference leads."""
    return read_secret(named).reveal() if named.startswith(("${env:", "file:")) else named


def _on_sqlite(look: Looked, path: str, text: str, removed: str) -> dict[str, Any]:
    why = unavailable()
    if why is not None:
        raise SandboxUnavailable(why)
    place = tempfile.mkdtemp(prefix="aegis-sql-")
    try:
        _copy(path, f"{place}/database")
        line, mounts = python_line(_CHILD)
        asked = {"database": "/data/database", "statement": text, "removed": removed}
        box = Box(mounts=(*mounts, Mount(source=place, target="/data", writable=True)))
        finished = run(line, box, _limits(look), stdin=orjson.dumps(asked))
    finally:
        shutil.rmtree(place)
    if finished.ended != "exited":
        return {"error": f"the statement was ended: `{finished.ended}`"}
    try:
        answer: dict[str, Any] = orjson.loads(finished.stdout)
    except ValueError:
        return {"error": "the statement gave no answer"}
    return answer


def _copy(path: str, target: str) -> None:
    """A consistent copy of a database that others may be writing; raises `StatementRefused` where there is none."""
    try:
        if os.stat(path).st_size > MAX_DATABASE:  # noqa: PTH116
            raise StatementRefused("the database for previews is too large to be copied")
        with (
            closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(copy, pages=_PAGES)
    except (OSError, sqlite3.Error) as error:
        raise StatementRefused("the database for previews cannot be read") from error


def _limits(look: Looked) -> Limits:
    rules = look.rules
    return Limits(seconds=rules.seconds, cpu_seconds=max(1, int(rules.seconds)), memory_bytes=rules.memory_bytes)
