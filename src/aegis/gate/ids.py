"""Identifiers that sort by the time they were made, so that an index over them grows at its end."""

from __future__ import annotations

import os
import time
from typing import Final

_RANDOM_BYTES: Final = 10


def new_id() -> str:
    """A fresh identifier as 32 hex digits: 48 bits of milliseconds, then 80 random bits."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(_RANDOM_BYTES).hex()}"
