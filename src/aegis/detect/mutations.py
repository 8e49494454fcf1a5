"""The mutations of a text of GraphQL: which fields it asks for, with the values of their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aegis.core.patterns import Lazy

MOST_CHARACTERS: Final = 16_384
_MOST_FIELDS: Final = 32
_DEEPEST: Final = 16
_WORD: Final = Lazy(r"[A-Za-z_]\w*|\"(?:[^\"\\]|\\.)*\"|\$\w+|-?\d+(?:\.\d+)?|[{}()\[\]:@]")
_CONSTANTS: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None}
_OPENS: Final = frozenset("{([")
_CLOSES: Final = frozenset("})]")


def mutations(text: str, variables: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each field that the mutations of a text ask for, with its arguments and the variables in them that are known."""
    words: list[str] = _WORD.findall(text[:MOST_CHARACTERS])
    given = variables if isinstance(variables, dict) else {}
    found = at = 0
    while at < len(words):
        if words[at] != "mutation":
            at += 1
            continue
        at += 1
        while at < len(words) and words[at] != "{":  # its name, and what its variables are
            at = _end(words, at) if words[at] == "(" else at + 1
        at += 1
        while at < len(words) and words[at] != "}" and found < _MOST_FIELDS:
            if words[at + 1 : at + 2] == [":"]:  # another name for the answer
                at += 2
                continue
            name = words[at]
            inner: dict[str, Any] = {}
            at += 1
            if words[at : at + 1] == ["("]:
                inner, at = _arguments(words, at + 1, given, 0)
            while at < len(words) and words[at] == "@":
                at += 2
                at = _end(words, at) if words[at : at + 1] == ["("] else at
            if words[at : at + 1] == ["{"]:
                at = _end(words, at)
            if name[:1].isalpha():
                found += 1
                yield name, inner


def _end(words: list[str], at: int) -> int:
    """The place behind the bracket that closes the one at `at`."""
    depth = 0
    while at < len(words):
        depth += (words[at] in _OPENS) - (words[at] in _CLOSES)
        at += 1
        if depth <= 0:
            break
    return at


def _arguments(words: list[str], at: int, given: Mapping[str, Any], depth: int) -> tuple[dict[str, Any], int]:
    """The names and values up to the bracket that closes them, and the place behind it."""
    found: dict[str, Any] = {}
    while at < len(words) and words[at] not in _CLOSES:
        if words[at + 1 : at + 2] == [":"]:
            found[words[at]], at = _value(words, at + 2, given, depth)
        else:
            at += 1
    return found, at + 1


def _value(words: list[str], at: int, given: Mapping[str, Any], depth: int) -> tuple[Any, int]:
    word = words[at] if at < len(words) else ""
    if depth >= _DEEPEST:
        return None, _end(words, at) if word in _OPENS else at + 1
    if word == "{":
        return _arguments(words, at + 1, given, depth + 1)
    if word == "[":
        listed: list[Any] = []
        at += 1
        while at < len(words) and words[at] not in _CLOSES:
            one, at = _value(words, at, given, depth + 1)
            listed.append(one)
        return listed, at + 1
    if word[:1] == "$":
        return given.get(word[1:]), at + 1
    if word[:1] == '"':
        return word[1:-1], at + 1
    return _CONSTANTS.get(word, int(word) if word.isdigit() else word), at + 1
