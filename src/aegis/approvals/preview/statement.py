"""Which SQL may be tried at all: one parsed statement of an allowed kind, by its tree and not by its words."""

from __future__ import annotations

from typing import Final, Literal

from sqlglot import exp

from aegis.facts.sql import SqlUnparsedError, SqlUnreadError, analyse_sql, parse_sql

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


class Refused(Exception):
    """The statement is not tried; the message says why, without any of its text."""


def check_statement(text: str, engine: Engine, allowed: frozenset[str]) -> tuple[str, str]:
    """The kind of the one statement in `text`, and the name of the table that it removes, if it removes one.

    Raises `Refused` where it is not exactly one, does not parse, or is not of a kind that is allowed.
    """
    # (1) Only what is read as a whole.
    try:
        statements = parse_sql(text, engine)
    except SqlUnreadError as error:
        raise Refused("the statement is too long to be read, or too much") from error
    except SqlUnparsedError as error:
        raise Refused("the statement cannot be parsed") from error
    # (2) One statement, so that no `COMMIT` hides behind it.
    if len(statements) != 1:
        raise Refused("there is not exactly one statement")
    statement = statements[0]
    # (3) Of an allowed kind, with nothing inside that leads out.
    kind = next((name for base, name in _KINDS if isinstance(statement, base)), "")
    if kind not in allowed:
        raise Refused(f"statements of the kind `{kind or 'other'}` are not tried")
    if any(isinstance(node, _NEVER) for node in statement.walk()):
        raise Refused("the statement holds something that leads out of a transaction")
    if any(signal == "sql.file" for signal, _ in analyse_sql(text).signals):
        raise Refused("the statement reads or writes files, or speaks to another server")
    removed = statement.find(exp.Table) if isinstance(statement, (exp.Drop, exp.TruncateTable)) else None
    return kind, "" if removed is None else removed.name
