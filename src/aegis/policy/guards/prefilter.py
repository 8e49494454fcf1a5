"""Whether something of some categories occurs in a piece of text, in the time that clean text allows.

(1) the screens of all patterns at once, which pass over prose; or the patterns themselves, which pass
    over tables of figures faster
(2) what the screens found, with the patterns themselves
(3) what is left, with the scanner, which confirms and checks it
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aegis.core.outcome import Category
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.rules.engine import EnginePattern, make_engines
from aegis.detect.rules.scanner import Scanner, screen

_SAMPLE: Final = 1_024  # bytes by which a text is taken for prose or for figures
_FIGURES: Final = 8  # one digit in so many characters: screens that begin with a digit begin everywhere
_DIGITS: Final = b"0123456789"


class Prefilter:
    """Finds quickly that no pattern of some categories occurs; a hit is looked at again by the scanner."""

    def __init__(self, scanner: Scanner, categories: Iterable[Category]):
        self.categories = frozenset(categories)
        rules = [one for one in scanner.rules.rules if one.category in self.categories and "result" in one.surfaces]
        patterns = [EnginePattern(text, rule.case_sensitive, lines=True) for rule in rules for text in rule.patterns]
        cache = default_cache_folder()
        self._scanner = scanner
        screens = list(dict.fromkeys(map(screen, patterns)))
        self._exact, self._screens = make_engines([patterns, screens], cache=cache)

    def found(self, data: bytes) -> frozenset[Category]:
        """The categories of which something occurs in `data`."""
        if not self._may_occur(data):
            return frozenset()
        hits = self._scanner.scan(data.decode("utf-8", "replace"), "result")
        return frozenset(hit.rule.category for hit in hits) & self.categories

    def _may_occur(self, data: bytes) -> bool:
        if self._is_hit(data):
            return True
        if data.isascii():
            return False
        # The engine folds the case of ASCII alone; other scripts are folded here, as the scanner does.
        text = data.decode("utf-8", "replace")
        lowered = text.lower()
        return lowered != text and self._is_hit(lowered.encode("utf-8", "replace"))

    def _is_hit(self, data: bytes) -> bool:
        sample = data[:_SAMPLE]
        is_prose = (len(sample) - len(sample.translate(None, _DIGITS))) * _FIGURES < len(sample)
        if is_prose and not self._screens.hits(data):
            return False
        return bool(self._exact.hits(data))
