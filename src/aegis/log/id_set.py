"""A set of identifiers in 16 to 32 bytes each, so that a verifier can remember those of a long log.

It keeps 63 bits of the interpreter's keyed string hash: two identifiers of ten million are taken for
one another with a chance of one in a hundred thousand, and nobody can make that happen, since the
key is drawn anew for every process.
"""

from __future__ import annotations

from array import array
from typing import Final

_FIRST_SLOTS: Final = 1 << 12
_MASK: Final = (1 << 63) - 1


class IdSet:
    """Open addressing with linear probing, at most half full; zero marks a free slot."""

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * _FIRST_SLOTS))
        self._mask = _FIRST_SLOTS - 1
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: str) -> bool:
        return bool(self._slots[self._find(_number(name))])

    @property
    def size_in_bytes(self) -> int:
        """What the slots take."""
        return len(self._slots) * self._slots.itemsize

    def add(self, name: str) -> bool:
        """Add an identifier; whether it was new."""
        number = _number(name)
        at = self._find(number)
        if self._slots[at]:
            return False
        self._slots[at] = number
        self._count += 1
        if self._count * 2 > self._mask:
            self._grow()
        return True

    def _find(self, number: int) -> int:
        """The slot that holds `number`, or the free one where it belongs."""
        slots, mask = self._slots, self._mask
        at = number & mask
        while (found := slots[at]) and found != number:
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        old = self._slots
        self._slots = array("Q", bytes(16 * len(old)))
        self._mask = len(self._slots) - 1
        for number in old:
            if number:
                self._slots[self._find(number)] = number


def _number(name: str) -> int:
    return hash(name) & _MASK | 1 << 63
