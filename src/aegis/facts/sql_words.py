"""Whether a text is a SQL statement, by its first two words; needs no parser."""

from __future__ import annotations

from typing import Final

_COMPANIONS: Final[dict[str, frozenset[str]]] = {
    "insert": frozenset({"into", "ignore", "overwrite"}),
    "replace": frozenset({"into"}),
    "delete": frozenset({"from"}),
    "create": frozenset(
        {"table", "view", "index", "database", "schema", "user", "or", "unique", "temporary", "function"}
    ),
    "drop": frozenset({"table", "view", "index", "database", "schema", "user", "column", "function", "trigger"}),
    "alter": frozenset({"table", "user", "database", "view", "role"}),
    "truncate": frozenset({"table"}),
    "grant": frozenset({"all", "select", "insert", "update", "delete", "create", "usage", "execute"}),
    "merge": frozenset({"into"}),
    "show": frozenset({"tables", "databases", "columns", "create", "grants", "index"}),
    "explain": frozenset({"select", "analyze", "query"}),
}


_STARTS: Final = frozenset(
    {letter for verb in (*_COMPANIONS, "select", "with") for letter in (verb[0], verb[0].upper())}
)


def looks_like_sql(text: str) -> bool:
    """Whether a text starts as a SQL statement does and goes on as one: a verb, then its companion."""
    if text.lstrip().lstrip("(")[:1] not in _STARTS:
        return False
    words = text.split(None, 2)
    if len(words) < 2:
        return False
    first, second = words[0].lower().lstrip("("), words[1].lower()
    if first in {"select", "with"}:
        lowered = text[:4_096].lower()
        return " from " in lowered or "\nfrom " in lowered or "(" in lowered or second in {"*", "1"} or ";" in lowered
    companions = _COMPANIONS.get(first)
    return companions is not None and second in companions
