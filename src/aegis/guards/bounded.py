"""How much a value holds, found out without looking at more than that."""

from __future__ import annotations

from typing import Any


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
