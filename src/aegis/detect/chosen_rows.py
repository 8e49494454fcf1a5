"""Which rows a condition of a statement chooses: whether it narrows anything, or finds every row there is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import islice
from operator import add, eq, ge, gt, le, lt, mod, mul, ne, sub, truediv
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
_MANY: Final = 999_999  # beyond every number that is worth a range


def selects_all(node: exp.Expr, target: exp.Expr) -> bool:
    """Whether a condition selects every row: it is always true, or asks what every key or every row of the table is.

    `id > 0`, `id IS NOT NULL`, `name LIKE '%'`, `id IN (SELECT id FROM the_table)`, `EXISTS (SELECT 1 FROM other)`.
    """
    node = node.unnest()
    if isinstance(node, (exp.And, exp.Or)):
        parts = (selects_all(part, target) for part in islice(node.flatten(), _MOST_PARTS))
        return all(parts) if isinstance(node, exp.And) else any(parts) or _contradicts(node) or _holds(node)
    if isinstance(node, exp.Not):
        held = node.this.unnest()
        if isinstance(held, exp.Is) and isinstance(held.expression, exp.Null):
            return _is_key(held.this)
        found = held.args.get("query") if isinstance(held, exp.In) else held.this
        is_none = isinstance(held, (exp.In, exp.Exists)) and found is not None and selects_none(found.unnest())
        return is_none or _settled(held) is False or _holds(node)
    if isinstance(node, (exp.Exists, exp.In)):
        return _finds_all(node, target) or always_true(node)
    if isinstance(node, exp.EQ) and isinstance(node.right, exp.Any):
        query = node.right.this.unnest()
        query = query.expressions[0] if isinstance(query, exp.Array) and query.expressions else query
        return _finds_all(exp.In(this=node.left, query=query), target)
    if isinstance(node, (exp.Like, exp.ILike)):
        return isinstance(node.expression, exp.Literal) and {"%"} <= set(node.expression.name) <= {"%", "@", "_"}
    if isinstance(node, (exp.RegexpLike, exp.RegexpILike, exp.SimilarTo)):
        return isinstance(node.expression, exp.Literal) and node.expression.name in _ANY_TEXT
    is_beyond = isinstance(node, (exp.GT, exp.GTE, exp.LT, exp.LTE)) and _beyond(node)
    return is_beyond or always_true(node) or _is_itself(node, target) or _holds(node)


_ANY_TEXT: Final = frozenset({"", ".", ".*", ".+", "^", "^.*", "^.*$", "^.+$", "%", "(?s).*"})


def _is_itself(node: exp.Expr, target: exp.Expr) -> bool:
    """Whether a table is joined to itself by its key: `o.id = p.id`, in a statement that names no other table."""
    if not (isinstance(node, exp.EQ) and _is_key(node.left) and node.left.name.lower() == node.right.name.lower()):
        return False
    tables = [table.name.lower() for table in islice(target.find_all(exp.Table), _MOST_PARTS)]
    return len(tables) > 1 and len({*tables}) == 1


_SUMS: Final[Mapping[type[exp.Expr], Callable[[Any, Any], Any]]] = {
    exp.Add: add, exp.Sub: sub, exp.Mul: mul, exp.Div: truediv, exp.Mod: mod,
    exp.And: lambda left, right: left and right, exp.Or: lambda left, right: left or right,
}  # fmt: skip
# What a column may hold; a key is above nothing.
_NUMBERS: Final = frozenset({0, 1, 7, -5, 123_456, 3})
_ANY_NUMBER: Final = 3  # for what is the same for every row
_LONGEST_NUMBER: Final = 20
_TEXTS: Final = frozenset({"", "a", "Zoe@b.example"})


def _holds(node: exp.Expr) -> bool:
    """Whether a condition holds whatever its one column is: `n * 0 = 0`, `length(mail) >= 0`, `n % 1 = 0`."""
    if next(islice(node.walk(), _MOST_TERMS, None), None) is not None:
        return False
    columns = {column.sql().lower(): column for column in islice(node.find_all(exp.Column), _MOST_PARTS)}
    told = {one.name for one in islice(node.find_all(exp.Literal), _MOST_PARTS)}
    near = {int(one) + by for one in told if one.isdigit() and len(one) < _LONGEST_NUMBER for by in (-1, 0, 1)}
    is_key = any(map(_is_key, node.find_all(exp.Column, exp.Anonymous)))
    numbers = {one for one in _NUMBERS | near if one < _MANY and (one > 0 or not is_key)}
    kinds = (numbers, _TEXTS | told, (True, False) if node.find(exp.Boolean) else ())
    for values in kinds if len(columns) <= 1 else ():
        try:
            if values and all(_worked_out(node, value) for value in values):
                return True
        except (ArithmeticError, TypeError, ValueError):  # not of this kind, or nothing that is known here
            continue
    return False


def _worked_out(node: exp.Expr, value: int | str) -> Any:
    """What an expression comes to where its column holds a value, if any; raises `TypeError` for what is not known."""
    node = node.unnest()
    given = [_worked_out(one, value) for one in node.iter_expressions()] if isinstance(node, _PLAIN) else []
    combined = _COMPARED.get(type(node)) or _SUMS.get(type(node))
    if isinstance(node, exp.Column) or _is_key(node):
        return value
    if isinstance(node, exp.Literal):
        return node.name if node.is_string else int(node.name)
    if combined is not None and isinstance(given[0], str) is isinstance(given[1], str):
        return combined(*given)
    if isinstance(node, exp.Between):
        return given[1] <= given[0] <= given[2]
    if isinstance(node, exp.In) and not node.args.get("query"):
        return given[0] in given[1:]
    if isinstance(node, (exp.Not, exp.Neg)):
        return not given[0] if isinstance(node, exp.Not) else -given[0]
    if isinstance(node, (exp.Abs, exp.Length)):
        return abs(given[0]) if isinstance(node, exp.Abs) else len(given[0])
    if isinstance(node, exp.Coalesce):
        return given[0]
    if isinstance(node, exp.If):
        return given[1] if given[0] else given[2]
    if isinstance(node, exp.Case) and not node.this:
        branches = ((_worked_out(one.this, value), one.args["true"]) for one in node.args["ifs"])
        return _worked_out(
            next((then for holds, then in branches if holds), node.args.get("default") or exp.Null()), value
        )
    if isinstance(node, exp.Select) and not node.args.get("where") and isinstance(node.expressions[0], exp.Count):
        return 1  # a row at the least
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return False
    if isinstance(node, (exp.Boolean, exp.Is)):
        return node.this if isinstance(node, exp.Boolean) else value is _worked_out(node.expression, value)
    if isinstance(node, exp.Func) and node.find(exp.Column, exp.Query) is None:
        return _ANY_NUMBER
    raise TypeError(node.key)


_PLAIN: Final = (*_COMPARED, *_SUMS, exp.Between, exp.In, exp.Not, exp.Neg, exp.Abs, exp.Length, exp.Coalesce, exp.If)
_MOST_PARTS: Final = 64  # of a condition
_MOST_TERMS: Final = 150  # of a condition that is worked out, which goes as deep


def _contradicts(node: exp.Or) -> bool:
    """Whether one part of a condition holds wherever another one does not: `a LIKE 'x' OR NOT a LIKE 'x'`."""
    parts = [one.unnest() for one in islice(node.flatten(), _MOST_PARTS)]
    denied = {part.this.unnest().sql().lower() for part in parts if isinstance(part, exp.Not)}
    return bool(denied) and any(part.sql().lower() in denied for part in parts)


def _is_key(node: exp.Expr | None) -> bool:
    """Whether a node is a key by its name: a column, or what a graph gives each node: `id(n)`."""
    return isinstance(node, (exp.Column, exp.Anonymous)) and node.name.lower() in _KEYS


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
    ahead |= isinstance(bound, _NOW) or bound.name.lower() in ("now", "getdate", "sysdate", "systimestamp", "utcnow")
    return is_upper and ahead and _HAPPENED.match(column.name) is not None


_NOW: Final = (exp.CurrentTimestamp, exp.CurrentDatetime, exp.CurrentDate)
_FAR: Final = Lazy(r"^(?:2[1-9]|[3-9]\d)\d\d-")
_EARLY: Final = Lazy(r"^(?:0|1[0-8]|19[0-6]\d|1970)\d*-")
_HAPPENED: Final = Lazy(
    r"(?i)^(?:created|inserted|ordered|placed|registered|updated|modified|changed)(?:_?(?:at|on|date|time|ts))?$"
)


def _finds_all(node: exp.Expr, target: exp.Expr) -> bool:
    """Whether a row is found by a query that narrows nothing, or that looks for itself in its own table."""
    query = node.args.get("query") if isinstance(node, exp.In) else node.this
    query = query.unnest() if isinstance(query, exp.Expr) else None
    if not isinstance(query, exp.Select) or any(query.args.get(part) for part in _NARROWS):
        return False
    own, other = target.find(exp.Table), query.find(exp.Table)
    named = other if target.args.get("with_") is None or other is None else _named(other, target.args["with_"])
    same = own is not None and named is not None and own.name.lower() == named.name.lower()
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


_NARROWS: Final = ("joins", "having", "limit", "group")


def _named(table: exp.Table, defined: exp.Expr) -> exp.Table | None:
    """The table that a common expression of a name gives whole, or the table of that name."""
    query = next((one.this for one in defined.expressions if one.alias == table.name), None)
    if query is None or not isinstance(query, exp.Select):
        return table if query is None else None
    return None if any(query.args.get(part) for part in (*_NARROWS, "where")) else query.find(exp.Table)
