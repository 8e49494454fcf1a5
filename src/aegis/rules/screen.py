"""Screens: for a pattern, a simpler one that occurs wherever it does, and that an automaton passes over faster.

A screen leaves out how a match may begin and end: most of what patterns cost over clean text is
trying beginnings. It finds too much; what it finds is looked at again with the pattern itself.
"""

from __future__ import annotations

from typing import Final

import re2

from aegis.rules.engine import Pattern

_CLASS: Final = r"\[(?:[^\]\\]|\\.)*\]"
# What stands before a match, and words that may stand at its beginning.
_CONTEXT: Final = re2.compile(rf"\(\?:\^\|{_CLASS}\)|\\b")
_OPTIONAL: Final = re2.compile(rf"{_CLASS}\{{0,\d+\}}\??")
# One of several words, after which anything may stand before one of several others.
_QUALIFIER: Final = re2.compile(rf"\(\?:[^()]*\){_CLASS}\{{0,\d+\}}\??")
_REPEATED: Final = ("?", "*", "+", "{")
# Letters before digits that alone tell enough.
_LETTERS: Final = re2.compile(r"\(\[[A-Za-z-]+\]\{\d+\}(\\d[^|()]*)\)")
_ENOUGH: Final = 3
_AFTER: Final = re2.compile(rf"(?:\(\?:{_CLASS}\|\\z\)|\\b)$")


def screen(pattern: Pattern) -> Pattern:
    """A pattern that occurs in every text in which `pattern` occurs; the pattern itself where none is known."""
    text = pattern.text
    if _divides(text):
        return pattern
    for step in (_without_beginning, _without_end, _without_letters):
        text = step(text)
    return pattern._replace(text=text) if text else pattern


def _without_beginning(text: str) -> str:
    while True:
        found = _CONTEXT.match(text) or _OPTIONAL.match(text)
        if found is None:
            found = _QUALIFIER.match(text)
            if found is None or not text.startswith("(?:", found.end()):
                return text
        elif text[found.end() : found.end() + 1] in _REPEATED:
            return text
        text = text[found.end() :]


def _without_end(text: str) -> str:
    found = _AFTER.search(text)
    # A backslash before it makes it something else.
    if found is None or (len(text[: found.start()]) - len(text[: found.start()].rstrip("\\"))) % 2:
        return text
    return text[: found.start()]


def _without_letters(text: str) -> str:
    found = _LETTERS.fullmatch(text)
    if found is None or found.group(1).count("\\d") < _ENOUGH:
        return text
    rest: str = found.group(1)
    return rest


def _divides(text: str) -> bool:
    """Whether there are alternatives outside of all groups: then each begins and ends by itself."""
    depth, escaped, inside = 0, False, False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif inside:
            inside = char != "]"
        elif char == "[":
            inside = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and not depth:
            return True
    return False
