"""Where data stands that is seen only once a text is decoded: base64, hex, percent signs and the like.

What an encoded piece holds cannot be masked inside of it, so the piece goes as a whole, or the line that it stands in
where only the line tells what it is.
"""

from __future__ import annotations

from typing import Final

import re2

from aegis.facts.effort import Effort
from aegis.facts.views import MOST_DECODED, may_have_views, views_of
from aegis.rules.model import Rule
from aegis.rules.scanner import Checks, Scanner

_PIECES: Final = re2.compile(r"""[^\s"'`,;<>()\[\]{}|]{8,}""")
_LINES: Final = re2.compile(r"[^\n]{8,}")
_LONGEST: Final = 65_536  # characters of one text that are looked through for encoded pieces


def encoded_spans(rule: Rule, text: str, scanner: Scanner) -> list[tuple[int, int]]:
    """The pieces of `text` in which `rule` finds something only once they are decoded, as spans of characters.

    Empty where there is none, and where the text is too long to look.
    """
    if len(text) > _LONGEST or not may_have_views(text):
        return []
    text = text.encode("utf-8", "replace").decode()  # a lone surrogate stands in no UTF-8
    effort, checks = Effort(MOST_DECODED), Checks()
    for shape in (_PIECES, _LINES):
        found = [match.span() for match in shape.finditer(text) if _hides(rule, match.group(), scanner, effort, checks)]
        if found:
            return found
    return []


def still_hides(rule: Rule, text: str, scanner: Scanner) -> bool:
    """Whether `rule` finds something in another reading of `text`, which has none of it as it stands."""
    return _hides(rule, text, scanner, Effort(MOST_DECODED), Checks())


def _hides(rule: Rule, piece: str, scanner: Scanner, effort: Effort, checks: Checks) -> bool:
    if not may_have_views(piece):
        return False
    open_ones = len(scanner.spans(rule, piece, checks=checks))
    return any(
        len(scanner.spans(rule, reading, checks=checks)) > open_ones
        for reading, kinds in views_of(piece, effort)
        if "shell" not in kinds
    )
