"""Times as integer microseconds since the epoch, UTC; RFC 3339 only where people and receipts read them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

MICROS: Final = 1_000_000


def system_clock() -> int:
    """The wall clock of this machine, in microseconds since the epoch."""
    return time.time_ns() // 1_000


def rfc3339(micros: int) -> str:
    """`2026-01-02T03:04:05.000006Z` for microseconds since the epoch."""
    seconds, fraction = divmod(micros, MICROS)
    return f"{_second(seconds)}.{fraction:06d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]  # `strftime` writes early years with fewer digits


def from_rfc3339(text: str) -> int:
    """Microseconds since the epoch for an RFC 3339 time; raises `ValueError` where the offset is missing."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs an offset, such as `Z`")
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * MICROS + moment.microsecond
