"""Patterns that every engine reads the same, in linear time."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

MAX_PATTERN: Final = 4_000  # characters: an automaton grows with its pattern
_MEMORY: Final = 16_777_216  # bytes one compiled pattern may take


def compile_pattern(pattern: str, *, case_sensitive: bool, groups: bool = False) -> Any:
    """The pattern for RE2 over UTF-8 bytes, `.` matching newlines; raises `re2.error`."""
    return _compile(pattern, case_sensitive, groups)


@lru_cache(maxsize=4_096)
def _compile(pattern: str, case_sensitive: bool, groups: bool) -> Any:
    options = re2.Options()
    options.case_sensitive = case_sensitive
    options.dot_nl = True
    options.never_capture = not groups
    options.log_errors = False
    options.max_mem = _MEMORY
    return re2.compile(pattern.encode(), options)


def check_pattern(pattern: str, *, case_sensitive: bool) -> str:
    """Why a pattern cannot be used, as one sentence; empty where it can."""
    if len(pattern) > MAX_PATTERN:
        return f"a pattern has more than {MAX_PATTERN} characters"
    if not pattern.isascii() and "[" in pattern and _class_has_wide(pattern):
        return "a character class holds characters outside ASCII; write them as alternatives"
    try:
        compiled = compile_pattern(pattern, case_sensitive=case_sensitive)
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        reason = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        return f"the pattern does not compile: {reason}"
    if compiled.search(b"") is not None:
        return "the pattern matches the empty text"
    return ""


def _class_has_wide(pattern: str) -> bool:
    inside, escaped = False, False
    for char in pattern:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == "[":
            inside = True
        elif char == "]":
            inside = False
        elif inside and not char.isascii():
            return True
    return False
