"""Identifiers that sort by the time they were made, so that an index over them grows at its end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

_RANDOM_BYTES: Final = 10
_AT_ONCE: Final = 64  # asking the system costs more than the bytes do

_pool: Iterator[str] = iter(())


def new_id() -> str:
    """A fresh identifier as 32 hex digits: 48 bits of milliseconds, then 80 random bits."""
    return f"{time.time_ns() // 1_000_000:012x}{next(_pool, None) or _refilled()}"


def _refilled() -> str:
    """One piece of new random bytes; the others wait in the pool, each for whoever takes it."""
    global _pool
    data = os.urandom(_RANDOM_BYTES * (_AT_ONCE + 1)).hex()
    size = 2 * _RANDOM_BYTES
    _pool = iter([data[at : at + size] for at in range(size, len(data), size)])
    return data[:size]


def _after_fork() -> None:
    """A child takes none of the bytes that its parent will use."""
    global _pool
    _pool = iter(())


os.register_at_fork(after_in_child=_after_fork)
