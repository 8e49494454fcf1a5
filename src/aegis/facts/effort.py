"""How much the analysers of one call may read: what many strings, or one text read many times, can cost together."""

from __future__ import annotations

from typing import Final

MOST_EFFORT: Final = 73_728  # units of one call, about a third of a microsecond each: bounds crafted calls
MOST_SECONDS: Final = 0.04  # of the processor for all parsers of a call: what units cannot foresee
LEAST: Final = 64  # units that looking at anything costs, however short it is


class Effort:
    """What is left to one call. A unit is what reading one character of a shell text costs.

    `seconds` are those of the processor that parsers may still take.
    """

    __slots__ = ("left", "seconds")

    def __init__(self, left: int = MOST_EFFORT):
        self.left = left
        self.seconds = MOST_SECONDS

    def take(self, units: int) -> bool:
        """Whether `units` more, and never fewer than `LEAST`, may be spent; the caller says what it left unread."""
        self.left -= max(units, LEAST)
        return self.left >= 0

    def has_time(self) -> bool:
        """Whether parsers may still take time; where not, nothing more may be read."""
        if self.seconds <= 0:
            self.left = min(self.left, -1)
        return self.seconds > 0
