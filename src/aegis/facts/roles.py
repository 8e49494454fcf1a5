"""What a string is for: from the operator's word, then the string itself, then the names around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import re2

from aegis.core.text import TextRole
from aegis.facts.extract import Raw
from aegis.facts.lexicon import executes, is_for_people, is_inert, named_role, names_any_text, writes_by_name
from aegis.facts.sql_words import looks_like_sql

_MOST_NAMES: Final = 200  # strings of a call among which the name of a file is looked for
# Places that hold a short plain value by their nature: a whole statement in one of them is an attack on
# the query that it will be put into, not a query.
_PLAIN: Final[frozenset[TextRole]] = frozenset({"identifier", "path", "url", "content", "code"})
_STATED: Final[frozenset[TextRole]] = _PLAIN | {"command"}
_WRITTEN: Final[frozenset[TextRole]] = frozenset({"content", "code"})
_RUN: Final[frozenset[TextRole]] = frozenset({"unknown", "query_fragment", "content", "command", "code"})
_SHAPED: Final[frozenset[TextRole]] = frozenset({"unknown", "query_fragment"})


_FILE: Final = re2.compile(
    r"^[^\n<>|*?\"]{0,400}(?:[/\\][^/\\\n]{1,200}|[\w)\]-]\.[A-Za-z0-9]{1,12}|(?:Make|Docker|Jenkins|Proc)file|LICENSE|README)$"
)
# A short text of one line is as much a value as any other: what is put into a query, a command or a path.
_SHORT: Final = 200
# What a text for people does not begin with: at most one word, and then a sign that ends a value.
_ENDS_VALUE: Final = re2.compile(r"""^\s*[\w.@%+-]{0,16}\s*(?:['";|&*()]|\$[({])""")
_VALUE_SIGNS: Final = frozenset("'\";|&*()$")  # one of which that asks for: most texts are asked no further
_PATCH: Final = ("diff --git ", "--- ", "*** Begin Patch", "@@ ", "Index: ")


def argument_of(path: str) -> str:
    """The nearest name in a pointer: indexes of arrays are no names."""
    above, _, token = path.rpartition("/")
    return token if token and not token.isdigit() else _last_name(above)


@lru_cache(maxsize=8_192)
def _last_name(path: str) -> str:
    for token in reversed(path.split("/")):
        if token and not token.isdigit():
            return token
    return ""


def writes_file(tool: str, raw: Sequence[Raw]) -> bool:
    """Whether a call writes or edits a file: the tool's name says so, and an argument names the file."""
    if not writes_by_name(tool):
        return False
    for path, value, is_key in raw[:_MOST_NAMES]:
        if not is_key and named_role(tool, argument_of(path))[0] == "path" and _FILE.search(value):
            return True
    return False


def role_of(
    tool: str, path: str, argument: str, value: str, declared: Mapping[str, TextRole], *, to_file: bool = False
) -> tuple[TextRole, int]:
    """The role of one string, and how sure it is (0 to 100).

    `path` is the string's pointer and `argument` the nearest name above it; `declared` maps pointers
    and argument names to the operator's word, which is always believed. `to_file` says that the call
    writes a file, so that what would be content or code is the text of that file.
    """
    if declared:
        word = declared.get(path) or declared.get(argument)
        if word is not None:
            return word, 100
    role, confidence, inert, runs = _named(tool, argument)
    if role in _WRITTEN and (to_file or value.startswith(_PATCH)):
        return "document", 70
    if inert:
        return "document", 50
    if runs is not None and role in _RUN:
        if role == "command" or (runs == "sql" and role != "content"):
            return ("command", 80) if role == "command" and runs != "sql" else (runs, 70)
        if runs == "command" and role == "unknown":
            return "command", 60
        if runs == "code" and (role == "code" or (role != "query_fragment" and "\n" in value)):
            return "code", 70 if role == "code" else 60
    if role not in _STATED and looks_like_sql(value):
        return "sql", 80
    if role in _SHAPED:
        return _by_shape(value, role, confidence)
    if role == "content" and _is_value(tool, argument, value):
        return _by_shape(value, "unknown", 20)
    return role, confidence


@lru_cache(maxsize=8_192)
def _named(tool: str, argument: str) -> tuple[TextRole, int, bool, TextRole | None]:
    """What names say: the role, how sure it is, whether it is inert, and what the tool executes."""
    role, confidence = named_role(tool, argument)
    return role, confidence, is_inert(tool, argument, role), executes(tool)


def _is_value(tool: str, argument: str, value: str) -> bool:
    """Whether what stands in a place for text is no text for people: short, and named or written like a value."""
    if len(value) > _SHORT or "\n" in value or is_for_people(tool):
        return False
    if names_any_text(argument):
        return True
    return not _VALUE_SIGNS.isdisjoint(value) and _ENDS_VALUE.search(value) is not None


def _by_shape(value: str, role: TextRole, confidence: int) -> tuple[TextRole, int]:
    if value.startswith(("http://", "https://", "ftp://", "file://")) and " " not in value:
        return "url", 70
    if value.startswith(("/", "./", "../", "~/")) and " " not in value and len(value) < 1_024:
        return "path", 60
    if len(value) > 200 and value.count(" ") * 12 > len(value):
        return "content", 50
    return role, confidence
