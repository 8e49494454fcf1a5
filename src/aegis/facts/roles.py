"""What a string is for: from the operator's word, then the string itself, then the names around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aegis.core.text import TextRole
from aegis.facts.lexicon import executes, named_role
from aegis.facts.sql_words import looks_like_sql

# Places that hold a short plain value by their nature: a whole statement in one of them is an attack on
# the query that it will be put into, not a query.
_PLAIN: Final[frozenset[TextRole]] = frozenset({"identifier", "path", "url", "content", "code"})


def role_of(tool: str, path: str, argument: str, value: str, declared: Mapping[str, TextRole]) -> tuple[TextRole, int]:
    """The role of one string, and how sure it is (0 to 100).

    `path` is the string's pointer and `argument` the nearest name above it; `declared` maps pointers
    and argument names to the operator's word, which is always believed.
    """
    if declared:
        word = declared.get(path) or declared.get(argument)
        if word is not None:
            return word, 100
    role, confidence = named_role(tool, argument)
    runs = executes(tool)
    if runs is not None and role in {"unknown", "query_fragment", "content", "command", "code"}:
        if role == "command" or (runs == "sql" and role != "content"):
            return ("command", 80) if role == "command" and runs != "sql" else (runs, 70)
        if runs == "command" and role == "unknown":
            return "command", 60
        if runs == "code" and role in {"unknown", "content"} and "\n" in value:
            return "code", 60
    if role not in _PLAIN and role != "command" and looks_like_sql(value):
        return "sql", 80
    if role in {"unknown", "query_fragment"}:
        return _by_shape(value, role, confidence)
    return role, confidence


def _by_shape(value: str, role: TextRole, confidence: int) -> tuple[TextRole, int]:
    if value.startswith(("http://", "https://", "ftp://", "file://")) and " " not in value:
        return "url", 70
    if value.startswith(("/", "./", "../", "~/")) and " " not in value and len(value) < 1_024:
        return "path", 60
    if len(value) > 200 and value.count(" ") * 12 > len(value):
        return "content", 50
    return role, confidence
