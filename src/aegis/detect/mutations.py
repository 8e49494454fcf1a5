"""The changes that a GraphQL document asks for: fields of a `mutation`, each read as a call of its own name.

Only what is asked of the server at its outermost level counts (GraphQL, October 2021, 6.2.2); values are followed to
the variables of the same call. What is no GraphQL gives nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import re2

from aegis.detect.extract import readable

_TOKEN: Final = re2.compile(r'"""|"(?:[^"\\\n]|\\.)*"|\$?[A-Za-z_]\w*|-?\d[\d.eE+-]*|[{}()\[\]:!=@|&]|\.\.\.|#[^\n]*')
_MUTATION: Final = "mutation"
_LONGEST: Final = 16_384  # characters of a document that are read
_MOST: Final = 4_000  # tokens
_MOST_STEPS: Final = 4 * _MOST  # of one document; a plain one takes each token once
_DEEPEST: Final = 16
_WORDS: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None}


def mutations(text: str, variables: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields of every mutation in a document, with their arguments; those of an `input` stand for themselves."""
    if len(text) > _LONGEST or _MUTATION not in text:
        return
    tokens = [token for token in _TOKEN.findall(readable(text)[0])[:_MOST] if token[0] != "#"]
    given = variables if isinstance(variables, dict) else {}
    fields = _Fields(tokens, given)
    for at, token in enumerate(tokens):
        if token == _MUTATION and (not at or tokens[at - 1] == "}"):
            yield from fields.read(at + 1)


class _Fields:
    def __init__(self, tokens: list[str], variables: Mapping[str, Any]):
        self._tokens = tokens
        self._variables = variables
        self._at = 0
        self._left = _MOST_STEPS  # whatever begins again and again in one document is read that often and no more

    def _next(self) -> str:
        self._left -= 1
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""

    def _peek(self) -> str:
        return self._tokens[self._at] if self._left > 0 and self._at < len(self._tokens) else ""

    def read(self, at: int) -> Iterator[tuple[str, dict[str, Any]]]:
        self._at = at
        while self._peek() not in ("{", "}", ""):  # a name, declarations of variables, directives
            if self._next() == "(":
                self._skip("(", ")")
        self._at += 1
        while self._peek() not in ("}", ""):
            name = self._next()
            if self._peek() == ":":  # another name for the answer
                self._at += 1
                name = self._next()
            arguments: dict[str, Any] = {}
            if self._peek() == "(":
                self._at += 1
                arguments = self._members(")", 0)
            if self._peek() == "{":
                self._at += 1
                self._skip("{", "}")
            if name.isidentifier():
                inner = arguments.pop("input", None)
                yield name, {**arguments, **inner} if isinstance(inner, dict) else arguments

    def _skip(self, opens: str, closes: str) -> None:
        depth = 1
        while depth and self._peek():
            token = self._next()
            depth += (token == opens) - (token == closes)

    def _members(self, closes: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._peek() not in (closes, ""):
            name = self._next()
            if self._peek() == ":":
                self._at += 1
                found[name] = self._value(depth + 1)
        self._at += 1
        return found

    def _value(self, depth: int) -> Any:
        sign = self._next()
        if depth > _DEEPEST:
            return None
        if sign == "{":
            return self._members("}", depth)
        if sign == "[":
            items = []
            while self._peek() not in ("]", ""):
                items.append(self._value(depth + 1))
            self._at += 1
            return items
        if sign[:1] == "$":
            return self._variables.get(sign[1:])
        return sign[1:-1] if sign[:1] == '"' else _WORDS.get(sign, sign)
