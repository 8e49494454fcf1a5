"""Which of a few linear-time patterns occur in a text: no places, no groups, one pass, a fraction of a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import re2

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
