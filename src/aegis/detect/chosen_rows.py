"""Which rows a condition of a statement chooses: whether it narrows anything, or finds every row there is."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

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
    if isinstance(node, exp.EQ):
        return (node.left == node.right and not isinstance(node.left, exp.Column)) or node.left == node.right
    if isinstance(node, exp.Like):
        return isinstance(node.this, exp.Literal) and isinstance(node.expression, exp.Literal)
    if isinstance(node, (exp.GT, exp.LT, exp.GTE, exp.LTE, exp.NEQ)):
        return isinstance(node.left, exp.Literal) and isinstance(node.right, exp.Literal)
    return False


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
        return (isinstance(held, exp.Boolean) and not held.this) or _never_true(held)
    if isinstance(node, (exp.Exists, exp.In)):
        return _finds_all(node, target)
    if isinstance(node, (exp.GT, exp.GTE, exp.NEQ)):
        return (_is_key(node.left) and _below(node.right, isinstance(node, exp.GTE))) or always_true(node)
    if isinstance(node, exp.Between):
        low, high = node.args.get("low"), node.args.get("high")
        return _is_key(node.this) and _below(low, True) and _number(high) > _MANY
    if isinstance(node, (exp.Like, exp.ILike)):
        return isinstance(node.expression, exp.Literal) and set(node.expression.name) == {"%"}
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


def _never_true(node: exp.Expr) -> bool:
    """Whether a condition compares two different constants."""
    return (
        isinstance(node, exp.EQ)
        and isinstance(node.left, exp.Literal)
        and isinstance(node.right, exp.Literal)
        and node.left != node.right
    )


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
