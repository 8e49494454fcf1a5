"""Answers about short words, remembered: the same options, paths and program names come in call after call."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

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
