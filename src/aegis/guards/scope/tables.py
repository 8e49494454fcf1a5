"""Tables of SQL, from the parsed statement: joins, sub-selects and targets included, names of CTEs left out."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from sqlglot import exp

from aegis.facts.sql import SqlUnparsedError, SqlUnreadError, parse_sql

_ALWAYS: Final = (None, "mysql")  # the two readings of a backslash in a string: tables of both count
_OTHERS: Final = ("postgres", "tsql", "sqlite")
# Other statements do things that are not in their tables.
_KNOWN: Final = (
    exp.Query, exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.TruncateTable,
    exp.Describe,
)  # fmt: skip


@lru_cache(maxsize=512)
def readings(text: str) -> frozenset[tuple[str, ...]] | None:
    """The tables that a text of SQL names, as (name,) or (schema, name); `None` where it cannot be read."""
    # MySQL runs what stands in comments that begin with `/*!`.
    if not text.strip() or "/*!" in text:
        return None
    found: set[tuple[str, ...]] = set()
    is_read = False
    for dialect in (*_ALWAYS, *_OTHERS):
        if dialect in _OTHERS and is_read:
            break
        try:
            statements = parse_sql(text, dialect)
        except SqlUnparsedError:
            continue
        except SqlUnreadError:
            return None
        if not statements:
            continue
        is_read = True
        for statement in statements:
            tables = _tables(statement) if isinstance(statement, _KNOWN) else None
            if tables is None:
                return None
            found |= tables
    return frozenset(found) if is_read else None


def _tables(statement: exp.Expr) -> set[tuple[str, ...]] | None:
    found: set[tuple[str, ...]] = set()
    for table in statement.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            return None  # a function or a parameter in the place of a table: its rows come from elsewhere
        parts = tuple(part.name.lower() for part in table.parts)
        if not all(parts):
            return None
        if len(parts) == 1 and _is_cte(table, parts[0]):
            continue
        found.add(parts)
    return found


def _is_cte(table: exp.Table, name: str) -> bool:
    """Whether the nearest definition of the name around the table is a common table expression."""
    node: Any = table
    inside: Any = None
    while node is not None:
        with_ = node.args.get("with_") or node.args.get("with")
        if with_ is not None:
            for cte in with_.expressions:
                # A CTE that is not recursive does not see itself: its own name is the table's.
                if cte.alias.lower() == name and (cte is not inside or with_.args.get("recursive")):
                    return True
        if isinstance(node, exp.CTE):
            inside = node
        node = node.parent
    return False
