"""One SQL statement on a PostgreSQL database for previews, in a transaction that is rolled back.

The role must not be able to step out: a superuser, a role that replicates or one that may run programs
and read files on the server is refused. The extended protocol carries one statement only, and that the
transaction is still the same one is checked before anything is believed.
"""

from __future__ import annotations

from typing import Any, Final

from aegis.approvals.preview.statement import Refused
from aegis.core.previewing import PreviewRules

MAX_ROWS: Final = 100_000
_MISSING: Final = "PostgreSQL support is not installed (`pip install aegis-guard[postgres]`)"
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
    """What `text` does inside of a transaction that never ends well; raises `Refused` where it is not tried."""
    try:
        import psycopg
    except ImportError as error:
        raise Refused(_MISSING) from error
    try:
        connection = psycopg.connect(url, autocommit=False, connect_timeout=max(1, int(rules.seconds)))
    except psycopg.Error as error:
        raise Refused("the database for previews cannot be reached") from error
    try:
        # (1) The role cannot leave the transaction by other means.
        rights = connection.execute(_RIGHTS).fetchone()
        if rights is None or rights[0]:
            raise Refused("the role for previews has rights that a rollback does not undo")
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
