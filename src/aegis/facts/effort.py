"""How much the analysers of one call may read: what many strings, or one text read many times, can cost together."""

from __future__ import annotations

from typing import Final

MOST_EFFORT: Final = 73_728  # units of one call, about a third of a microsecond each: bounds crafted calls
MOST_STEPS: Final = 1_600  # of all parsers of a call: what the length of a text does not foresee
LEAST: Final = 64  # units that looking at anything costs, however short it is


class Effort:
    """What is left to one call. A unit is what reading one character of a shell text costs.

    `steps` are those that parsers may still take, by their own count: the same for the same text, on every machine.
    """

    __slots__ = ("left", "steps")

    def __init__(self, left: int = MOST_EFFORT):
        self.left = left
        self.steps = MOST_STEPS

    def take(self, units: int) -> bool:
        """Whether `units` more, and never fewer than `LEAST`, may be spent; the caller says what it left unread."""
        self.left -= max(units, LEAST)
        return self.left >= 0
