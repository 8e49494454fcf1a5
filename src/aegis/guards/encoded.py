"""Where data stands that is seen only once a text is decoded: base64, hex, percent signs and the like.

What an encoded piece holds cannot be masked inside of it, so the piece goes as a whole, or the line that it stands in
where only the line tells what it is.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import re2

from aegis.facts.effort import Effort
from aegis.facts.views import MOST_DECODED, may_have_views, views_of
from aegis.rules.model import Rule
from aegis.rules.scanner import Checks, Scanner

_PIECES: Final = re2.compile(r"""[^\s"'`,;<>()\[\]{}|]{8,}""")
_LINES: Final = re2.compile(r"[^\n]{8,}")
_MOST_READ: Final = 2 * MOST_DECODED  # characters: all that was decoded of a result, and the pieces of it
_LONGEST: Final = 65_536  # characters of one text that are looked through for encoded pieces


class _Piece(NamedTuple):
    """A piece of a text that has other readings, from `start` up to `end`."""

    start: int
    end: int
    text: str
    readings: tuple[str, ...]


class Encoded:
    """The texts of one result in their other readings; what looking costs is bounded for all findings together."""

    def __init__(self, scanner: Scanner):
        self._scanner = scanner
        self._effort = Effort(_MOST_READ)
        self._checks = Checks()
        self._pieces: dict[tuple[str, Any], list[_Piece]] = {}
        self._readings: dict[str, tuple[str, ...]] = {}

    def spans(self, rule: Rule, text: str) -> list[tuple[int, int]]:
        """The pieces of `text` in which `rule` finds something only once they are decoded, as spans of characters.

        Empty where there is none, and where the text is too long to look.
        """
        if len(text) > _LONGEST or not may_have_views(text):
            return []
        for shape in (_PIECES, _LINES):
            pieces = self._pieces_of(text, shape)
            found = [(piece.start, piece.end) for piece in pieces if self._hides(rule, piece.text, piece.readings)]
            if found:
                return found
        return []

    def still_hides(self, rule: Rule, text: str) -> bool:
        """Whether `rule` finds something in another reading of `text`, which has none of it as it stands.

        So it is, too, where looking would cost more than one result may.
        """
        readings = self._readings.get(text)
        if readings is None:
            readings = self._readings[text] = self._read(text)
        return self._hides(rule, text, readings) or self._effort.left < 0

    def _pieces_of(self, text: str, shape: Any) -> list[_Piece]:
        pieces = self._pieces.get((text, shape))
        if pieces is None:
            pieces = self._pieces[text, shape] = []
            # A lone surrogate stands in no UTF-8.
            for match in (
                shape.finditer(text.encode("utf-8", "replace").decode()) if self._effort.take(len(text)) else ()
            ):
                readings = self._read(match.group())
                if readings:
                    pieces.append(_Piece(match.start(), match.end(), match.group(), readings))
        return pieces

    def _read(self, text: str) -> tuple[str, ...]:
        if self._effort.left < 0:
            return ()
        return tuple(reading for reading, kinds in views_of(text, self._effort) if "shell" not in kinds)

    def _hides(self, rule: Rule, text: str, readings: tuple[str, ...]) -> bool:
        if not readings or not self._effort.take(len(text)):
            return False
        open_ones = len(self._scanner.spans(rule, text, checks=self._checks))
        return any(
            self._effort.take(len(reading)) and len(self._scanner.spans(rule, reading, checks=self._checks)) > open_ones
            for reading in readings
        )
