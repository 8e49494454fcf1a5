"""Which of a few linear-time patterns occur in a text: no places, no groups, one pass, a fraction of a search."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

import re2

# Answers about short words, remembered: the same options, paths and program names come in call after call.

T = TypeVar("T")
_MOST_WORDS: Final = 4_096
_LONGEST: Final = 128  # characters of a word that is remembered: bounds what the memory holds


def remembered(function: Callable[[str], T]) -> Callable[[str], T]:
    """`function`, with its answers for short words kept; it must be pure. At most half a megabyte of words."""
    known = lru_cache(maxsize=_MOST_WORDS)(function)

    @wraps(function)
    def ask(word: str) -> T:
        return known(word) if len(word) <= _LONGEST else function(word)

    return ask


_MEMORY: Final = 8_388_608  # bytes that the automaton of one set may take


def one_of(*patterns: str) -> Callable[[str], list[int]]:
    """A function from a text to the numbers of the patterns that occur in it; empty for most texts."""
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    group = re2.Set.SearchSet(options)
    for pattern in patterns:
        group.Add(pattern)
    group.Compile()
    match = group.Match

    def found(text: str) -> list[int]:
        return match(text.encode("utf-8", "replace")) or []

    return found
