"""What a value is by its size alone: found out without looking at more than that."""

from __future__ import annotations

from typing import Any, Final

_LONGEST_NAME: Final = 12


def holds_at_most(root: Any, limit: int) -> bool:
    """Whether a JSON value holds at most `limit` values, itself and containers included."""
    waiting, count = [root], 1
    while waiting:
        value = waiting.pop()
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        count += len(inner)
        if count > limit:
            return False
        waiting.extend(inner)
    return True


def is_name(value: str) -> bool:
    """Whether a string is one word of at most twelve ASCII letters and digits, of which no rule speaks."""
    return len(value) <= _LONGEST_NAME and value.isascii() and value.isalnum()
