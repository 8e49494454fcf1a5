"""Which rows a condition of a statement chooses: whether it narrows anything, or finds every row there is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import islice
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from aegis.core.patterns import Lazy
from aegis.detect.sql_constants import constant_of

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its notes on dialects would carry statements into logs
_LONGEST: Final = 400  # characters of a condition that is read by itself
_MOST_NESTED: Final = 16  # brackets in it
_MOST_NODES: Final = 400


def selects_every(condition: str) -> bool:
    """Whether a condition that is written as in SQL holds for every row; false for one that cannot be read."""
    if len(condition) > _LONGEST or condition.count("(") > _MOST_NESTED:
        return False
    try:
        return selects_all(exp.condition(condition, max_nodes=_MOST_NODES), exp.Delete())
    except (SqlglotError, RecursionError, ValueError, AttributeError, TypeError, KeyError, IndexError):
        return False


def always_true(node: exp.Expr | None) -> bool:
    """Whether a condition is true whatever the row holds: a constant, or a thing equal to itself."""
    node = node.unnest() if isinstance(node, exp.Expr) else node
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        return not node.is_string and node.name not in {"0", ""}
    if isinstance(node, exp.EQ) and node.left == node.right:
        return True
    return node is not None and _settled(node) is True


_COMPARED: Final[Mapping[type[exp.Expr], Callable[[Any, Any], bool]]] = {
    exp.EQ: eq, exp.NEQ: ne, exp.GT: gt, exp.GTE: ge, exp.LT: lt, exp.LTE: le,
}  # fmt: skip


def _settled(node: exp.Expr) -> bool | None:
    """What a condition of constants alone comes to: `7 % 2 = 1`, `'a' IN ('a', 'b')`; `None` for every other one."""
    if isinstance(node, exp.In) and not node.args.get("query"):
        held = _constant(node.this)
        return None if held is None else held in map(_constant, node.expressions[:_MOST_PARTS])
    if isinstance(node, exp.Like):
        return True if isinstance(node.this, exp.Literal) and isinstance(node.expression, exp.Literal) else None
    compared = _COMPARED.get(type(node))
    if compared is None or not isinstance(node, exp.Binary):
        return None
    left, right = _constant(node.left), _constant(node.right)
    if type(left) is type(right) and left is not None:
        return compared(left, right)
    is_even = isinstance(node, exp.EQ) or not (
        isinstance(node.left, exp.Literal) and isinstance(node.right, exp.Literal)
    )
    return None if is_even else True  # of kinds that each database compares in its own way: `2 > 1.5`


def _constant(node: exp.Expr) -> str | int | None:
    if next(node.find_all(exp.Column, exp.Query), None) is not None:
        return None
    text = node.sql()
    return constant_of(text) if len(text) <= _LONGEST else None


def selects_none(query: exp.Expr | None) -> bool:
    """Whether a query finds nothing whatever its tables hold: `LIMIT 0`, `WHERE 1 = 2`."""
    if not isinstance(query, exp.Select):
        return False
    limit, where = query.args.get("limit"), query.args.get("where")
    if limit is not None and isinstance(limit.expression, exp.Literal) and limit.expression.name == "0":
        return True
    condition = None if where is None else where.this.unnest()
    is_false = isinstance(condition, exp.Boolean) and not condition.this
    return is_false or (condition is not None and (_settled(condition) is False or condition.sql() == "0"))


_KEYS: Final = frozenset({"id", "pk", "uuid", "guid", "rowid", "oid", "_id", "ctid", "key"})
_FEW: Final = 1  # the least that a key is
_MANY: Final = 999_999  # beyond every key of a table that is worth a range


def selects_all(node: exp.Expr, target: exp.Expr) -> bool:
    """Whether a condition selects every row: it is always true, or asks what every key or every row of the table is.

    `id > 0`, `id IS NOT NULL`, `name LIKE '%'`, `id IN (SELECT id FROM the_table)`, `EXISTS (SELECT 1 FROM other)`.
    """
    node = node.unnest()
    if isinstance(node, (exp.And, exp.Or)):
        parts = (selects_all(part, target) for part in islice(node.flatten(), _MOST_PARTS))
        return all(parts) if isinstance(node, exp.And) else any(parts) or _covers(node) or _contradicts(node)
    if isinstance(node, exp.Not):
        held = node.this.unnest()
        if isinstance(held, exp.Is) and isinstance(held.expression, exp.Null):
            return _is_key(held.this)
        return (isinstance(held, exp.Boolean) and not held.this) or _settled(held) is False
    if isinstance(node, (exp.Exists, exp.In)):
        return _finds_all(node, target) or always_true(node)
    if isinstance(node, (exp.GT, exp.GTE, exp.NEQ)):
        is_low = _is_key(node.left) and _below(node.right, isinstance(node, exp.GTE))
        return is_low or _beyond(node) or always_true(node)
    if isinstance(node, (exp.LT, exp.LTE)):
        return _beyond(node) or always_true(node)
    if isinstance(node, exp.Between):
        low, high = node.args.get("low"), node.args.get("high")
        return _is_key(node.this) and _below(low, True) and _number(high) > _MANY
    if isinstance(node, (exp.Like, exp.ILike)):
        return isinstance(node.expression, exp.Literal) and {"%"} <= set(node.expression.name) <= {"%", "@"}
    return always_true(node)


_MOST_PARTS: Final = 64  # of a condition


def _covers(node: exp.Or) -> bool:
    """Whether what is asked of one column holds for every row between its parts: `x = 1 OR x IS NOT NULL`."""
    asked: dict[str, dict[str, set[str]]] = {}
    for one in islice(node.flatten(), _MOST_PARTS):
        part = one.unnest()
        sign = _SIGNS.get(type(part), "")
        if isinstance(part, exp.Not) and isinstance(held := part.this.unnest(), (exp.Is, exp.EQ)):
            part, sign = held, "there" if isinstance(held, exp.Is) else "unlike"
        if isinstance(part, exp.Is) and not isinstance(part.expression, exp.Null):
            continue
        if sign and isinstance(part.this, exp.Column):
            value = part.args.get("expression")
            told = asked.setdefault(part.this.sql().lower(), {})
            told.setdefault(sign, set()).add("" if value is None else value.sql().lower())
    return any(
        ("there" in told and ("like" in told or "absent" in told))
        or not told.get("like", set()).isdisjoint(told.get("unlike", ()))
        or {"true", "false"} <= told.get("like", set())
        or not told.get("above", set()).isdisjoint(told.get("below", ()))
        for told in asked.values()
    )


def _contradicts(node: exp.Or) -> bool:
    """Whether one part of a condition holds wherever another one does not: `a LIKE 'x' OR NOT a LIKE 'x'`."""
    parts = [one.unnest() for one in islice(node.flatten(), _MOST_PARTS)]
    denied = {part.this.unnest().sql().lower() for part in parts if isinstance(part, exp.Not)}
    return bool(denied) and any(part.sql().lower() in denied for part in parts)


_SIGNS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "like", exp.NEQ: "unlike", exp.Is: "absent", exp.GTE: "above", exp.GT: "above", exp.LT: "below",
    exp.LTE: "below",
}  # fmt: skip


def _is_key(node: exp.Expr | None) -> bool:
    """Whether a node is a key by its name: a column, or what a graph gives each node: `id(n)`."""
    return isinstance(node, (exp.Column, exp.Anonymous)) and node.name.lower() in _KEYS


def _number(node: exp.Expr | None) -> float:
    text = "" if node is None else node.sql()
    return float(text) if len(text) <= _LONGEST_NUMBER and text.lstrip("-").isdigit() else 0.0


_LONGEST_NUMBER: Final = 20


def _below(node: exp.Expr | None, with_it: bool) -> bool:
    """Whether a number stands below every key; `with_it` where the number itself may be one."""
    text = "" if node is None else node.sql()
    return len(text) <= _LONGEST_NUMBER and text.lstrip("-").isdigit() and int(text) < _FEW + with_it


def _beyond(node: exp.Expr) -> bool:
    """Whether a moment is compared with one that all lie before or behind, or a column with its own least or most."""
    column, bound = node.this, node.expression
    is_upper = isinstance(node, (exp.LT, exp.LTE))
    if not isinstance(column, exp.Column):
        return False
    if isinstance(bound, exp.Subquery) and isinstance(query := bound.this, exp.Select) and not query.args.get("where"):
        edge = query.expressions[0] if query.expressions else None
        edges = exp.Max if is_upper else exp.Min
        return isinstance(edge, edges) and edge.this == column and isinstance(node, (exp.LTE, exp.GTE))
    if isinstance(bound, exp.Literal) and bound.is_string:
        return _FAR.match(bound.name) is not None if is_upper else _EARLY.match(bound.name) is not None
    ahead = isinstance(bound, exp.Add) and isinstance(bound.expression, exp.Interval)
    return is_upper and ahead and _HAPPENED.match(column.name) is not None


_FAR: Final = Lazy(r"^(?:2[1-9]|[3-9]\d)\d\d-")
_EARLY: Final = Lazy(r"^(?:0|1[0-8]|19[0-6]\d|1970)\d*-")
_HAPPENED: Final = Lazy(
    r"(?i)^(?:created|inserted|ordered|placed|registered|updated|modified|changed)(?:_?(?:at|on|date|time|ts))?$"
)


def _finds_all(node: exp.Expr, target: exp.Expr) -> bool:
    """Whether a row is found by a query that narrows nothing, or that looks for itself in its own table."""
    query = node.args.get("query") if isinstance(node, exp.In) else node.this
    query = query.unnest() if isinstance(query, exp.Expr) else None
    if not isinstance(query, exp.Select) or any(query.args.get(part) for part in ("joins", "having", "limit", "group")):
        return False
    own, other = target.find(exp.Table), query.find(exp.Table)
    same = own is not None and other is not None and own.name.lower() == other.name.lower()
    where = query.args.get("where")
    if isinstance(node, exp.In):
        chosen = query.expressions[0] if query.expressions else None
        is_itself = isinstance(chosen, exp.Column) and chosen.name.lower() == node.this.name.lower()
        return same and is_itself and where is None
    if where is None:
        return True
    condition = where.this.unnest()
    if not (same and isinstance(condition, exp.EQ)):
        return False
    left, right = condition.left, condition.right
    return isinstance(left, exp.Column) and isinstance(right, exp.Column) and left.name.lower() == right.name.lower()
