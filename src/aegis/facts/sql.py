"""SQL by its tree: what each statement does, whichever words it is written with.

A statement that changes data can stand inside a common table expression, so the whole tree is walked.
Text that no dialect parses keeps its leading words as evidence and says so.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from time import thread_time
from typing import Final

import re2
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from aegis.facts.effort import Effort

MAX_SQL: Final = 16_384  # characters given to the parser, which takes about a microsecond each
MAX_NESTING: Final = 80  # parentheses: the parser recurses
_MAX_NODES: Final = 20_000
_UNITS: Final = 4  # of effort that a character costs, and once more where the parser gives up
_FAILED: Final = 512  # of them that giving up costs

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its notes on dialects would carry statements into logs

_WRITES: Final = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Alter, exp.Drop, exp.TruncateTable)
_LEAVES: Final = frozenset({exp.Literal, exp.Identifier, exp.Column, exp.Paren, exp.And, exp.EQ, exp.Tuple, exp.Alias})
_DELAY: Final = frozenset({"sleep", "pg_sleep", "pg_sleep_for", "benchmark", "randomblob", "dbms_pipe.receive_message"})
_FILE: Final = frozenset({
    "load_file", "pg_read_file", "pg_read_binary_file", "pg_ls_dir", "lo_import", "lo_export", "readfile",
    "writefile",
    "load_extension", "xp_cmdshell", "xp_dirtree", "sys_exec", "sys_eval", "utl_http.request", "utl_file.fopen",
    "openrowset", "opendatasource", "dblink", "query_to_xml", "extractvalue", "updatexml",
})  # fmt: skip
_CATALOGUE: Final = frozenset({
    "information_schema", "pg_catalog", "sqlite_master", "sqlite_schema", "sysobjects", "syscolumns", "pg_shadow",
    "pg_user", "pg_authid", "all_tables", "all_users", "user_tables", "dba_users", "sys", "mysql",
})  # fmt: skip
_IRREVERSIBLE_WORDS: Final = frozenset({"drop", "truncate"})
_WRITE_WORDS: Final = frozenset(
    {"insert", "update", "delete", "create", "alter", "grant", "revoke", "replace", "merge", "exec", "execute", "call"}
)
_READ_WORDS: Final = frozenset({
    "select", "with", "show", "describe", "desc", "explain", "values", "pragma", "use", "set", "table", "begin",
    "commit",
})  # fmt: skip


@dataclass(kw_only=True, slots=True)
class SqlFacts:
    """What one SQL text does; `signals` are stable names with the piece that shows them."""

    parsed: bool = True
    too_long: bool = False
    reads: bool = False
    writes: bool = False
    irreversible: bool = False
    signals: list[tuple[str, str]]


def analyse_sql(text: str, effort: Effort | None = None) -> SqlFacts:
    """The facts of one SQL text; never raises, and reads at most `MAX_SQL` characters, as far as `effort` goes."""
    facts = SqlFacts(signals=[])
    effort = effort or Effort()
    if len(text) > MAX_SQL or not effort.take(len(text) * _UNITS) or not effort.has_time():
        facts.parsed, facts.too_long, facts.writes = False, True, True
        return facts
    if _nesting(text) > MAX_NESTING:
        _by_words(text, facts)
        return facts
    start = thread_time()
    try:
        statements = [statement for statement in sqlglot.parse(text) if statement is not None]
    except (SqlglotError, RecursionError, ValueError, AttributeError, TypeError, KeyError, IndexError):
        # A tree that cannot be built is a fact, not a failure: the words are read instead.
        effort.left -= _FAILED + len(text) * _UNITS
        _by_words(text, facts)
        return facts
    finally:
        effort.seconds -= thread_time() - start
    if not statements:
        facts.parsed = False
        return facts
    seen_read = False
    for statement in statements:
        before = facts.irreversible
        _walk(statement, facts)
        privileged = isinstance(statement, (exp.Grant, exp.Command)) and _first_word(statement.sql()) in _WRITE_WORDS
        if seen_read and ((facts.irreversible and not before) or privileged):
            facts.signals.append(("sql.stacked", statement.sql()[:80]))
        seen_read = seen_read or isinstance(statement, (exp.Select, exp.Union))
    return facts


def _walk(statement: exp.Expr, facts: SqlFacts) -> None:
    for number, node in enumerate(statement.walk()):
        if number > _MAX_NODES:
            facts.parsed = False
            return
        if type(node) in _LEAVES:
            continue
        if isinstance(node, _WRITES):
            facts.writes = True
            _change(node, facts)
        elif isinstance(node, (exp.Select, exp.Table)):
            facts.reads = True
        elif isinstance(node, (exp.Or, exp.Where)):
            parts = [node.left, node.right] if isinstance(node, exp.Or) else []
            if any(_always_true(part) for part in parts):
                facts.signals.append(("sql.tautology", node.sql()[:80]))
        elif isinstance(node, (exp.Anonymous, exp.Func)):
            name = _function(node)
            if name in _DELAY:
                facts.signals.append(("sql.delay", name))
            elif name in _FILE:
                facts.signals.append(("sql.file", name))
        elif isinstance(node, exp.Union):
            if not isinstance(node.parent, exp.Union):  # the outermost one holds the others
                _union(node, facts)
        elif isinstance(node, exp.Copy):
            facts.writes = True
            if "program" in node.sql().lower():
                facts.signals.append(("sql.file", "copy program"))
        elif isinstance(node, (exp.Command, exp.Grant)):
            _by_words(node.sql(), facts)


# Rights over a whole server: of MySQL (`ON *.*`), PostgreSQL, Oracle and SQL Server.
_GIVES_ALL: Final = re2.compile(
    r"(?is)^\s*\(?grant\s+(?:.{1,200}\son\s+\*\s*\.\s*\*|(?:superuser|sysdba|dba|db_owner|sysadmin|rds_superuser|"
    r"accountadmin|securityadmin|control\s+server|pg_\w*(?:write|execute)_server\w*|all\s+privileges\s+to)\b)"
)


def _change(node: exp.Expr, facts: SqlFacts) -> None:
    if isinstance(node, (exp.Drop, exp.TruncateTable)):
        kind = str(node.args.get("kind") or "").upper()
        if isinstance(node, exp.TruncateTable) or (
            kind in {"TABLE", "DATABASE", "SCHEMA", "COLUMN", ""} and not node.args.get("temporary")
        ):
            facts.irreversible = True
            facts.signals.append(("sql.destroy", node.sql()[:80]))
    elif isinstance(node, (exp.Delete, exp.Update)):
        where = node.args.get("where")
        if where is None or _always_true(where.this):
            facts.irreversible = True
            facts.signals.append(("sql.every-row", node.sql()[:80]))


def _union(node: exp.Expr, facts: SqlFacts) -> None:
    for table in node.find_all(exp.Table):
        if table.name.lower() in _CATALOGUE or str(table.args.get("db") or "").lower().strip('"`') in _CATALOGUE:
            facts.signals.append(("sql.catalogue-union", table.sql()[:80]))
            return


def _function(node: exp.Expr) -> str:
    name = node.name if isinstance(node, exp.Anonymous) else node.sql_name() if isinstance(node, exp.Func) else ""
    return name.lower()


def _always_true(node: exp.Expr | None) -> bool:
    """Whether a condition is true whatever the row holds: a constant, or a thing equal to itself."""
    node = node.unnest() if isinstance(node, exp.Expr) else node
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        return not node.is_string and node.name not in {"0", ""}
    if isinstance(node, exp.EQ):
        return (node.left == node.right and not isinstance(node.left, exp.Column)) or node.left == node.right
    if isinstance(node, exp.Like):
        return isinstance(node.this, exp.Literal) and isinstance(node.expression, exp.Literal)
    if isinstance(node, (exp.GT, exp.LT, exp.GTE, exp.LTE, exp.NEQ)):
        return isinstance(node.left, exp.Literal) and isinstance(node.right, exp.Literal)
    return False


def _by_words(text: str, facts: SqlFacts) -> None:
    facts.parsed = False
    for piece in text.split(";"):
        words = piece.lower().split(None, 6)
        if not words:
            continue
        first = words[0].lstrip("(")
        if first in _IRREVERSIBLE_WORDS and len(words) > 1 and words[1] in {"table", "database", "schema"}:
            facts.writes = facts.irreversible = True
            facts.signals.append(("sql.destroy", piece.strip()[:80]))
        elif first == "delete" and " where " not in piece.lower() and len(words) > 2 and words[1] == "from":
            facts.writes = facts.irreversible = True
            facts.signals.append(("sql.every-row", piece.strip()[:80]))
        elif first in _WRITE_WORDS or first in _IRREVERSIBLE_WORDS:
            facts.writes = True
            if first == "grant" and _GIVES_ALL.search(piece):
                facts.signals.append(("sql.grants", piece.strip()[:80]))
        elif first in _READ_WORDS:
            facts.reads = True


def _first_word(text: str) -> str:
    words = text.split(None, 1)
    return words[0].lower() if words else ""


def _nesting(text: str) -> int:
    depth = deepest = 0
    for char in text:
        if char == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif char == ")":
            depth -= 1
    return deepest if text.lower().count("case") < MAX_NESTING else MAX_NESTING + 1
