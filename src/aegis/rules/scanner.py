"""The scanner: all patterns of all rules in one pass over a text, then each hit confirmed and located."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from aegis.core.text import SURFACES, Surface
from aegis.rules.engine import Pattern, make_engine
from aegis.rules.model import Rule, RuleSet
from aegis.rules.patterns import compile_pattern

WINDOW_BEFORE: Final = 4_096  # bytes before the reported end in which a match is looked for first
WINDOW_AFTER: Final = 256
_NO_RULES: Final[tuple[Rule, ...]] = ()


class Hit(NamedTuple):
    """One rule that matched, and the matched piece as a span of characters."""

    rule: Rule
    start: int
    end: int


class Scanner:
    """Compiled once from a rule set, then used by any number of threads; also after a fork.

    `cache` is a folder for the compiled database (`None`: compiled anew). `engine` is `hyperscan` or
    `re2`; without the former the latter takes its place.
    """

    def __init__(self, rules: RuleSet, *, cache: Path | None = None, engine: str = "hyperscan"):
        self.rules = rules
        owners: list[Rule] = []
        patterns: list[Pattern] = []
        confirm: list[Any] = []
        facts: dict[str, list[Rule]] = {}
        for rule in rules.rules:
            for text in rule.patterns:
                owners.append(rule)
                patterns.append(Pattern(text, rule.case_sensitive))
                confirm.append(compile_pattern(text, case_sensitive=rule.case_sensitive))
            for fact in rule.facts:
                facts.setdefault(fact, []).append(rule)
        self._owners = tuple(owners)
        self._confirm = tuple(confirm)
        self._engine = make_engine(patterns, cache=cache, prefer=engine)
        self._facts: Mapping[str, tuple[Rule, ...]] = {name: tuple(found) for name, found in facts.items()}
        self._applies = {surface: tuple(surface in rule.surfaces for rule in owners) for surface in SURFACES}

    def scan(self, text: str, surface: Surface) -> list[Hit]:
        """Every rule of `surface` with a pattern that occurs in `text`; one hit a rule.

        Time is linear in the text. A lone surrogate is read as a replacement character.
        """
        data = text.encode("utf-8", "replace")
        found = self._engine.hits(data)
        if not found:
            return []
        applies = self._applies[surface]
        hits: list[Hit] = []
        taken: set[str] = set()
        for index, end in found:
            rule = self._owners[index]
            if not applies[index] or rule.id in taken:
                continue
            span = self._locate(index, data, end)
            if span is not None:
                taken.add(rule.id)
                hits.append(Hit(rule, _characters(data, span[0]), _characters(data, span[1])))
        return hits

    def rules_for(self, fact: str) -> tuple[Rule, ...]:
        """The rules that judge the signal `fact`."""
        return self._facts.get(fact, _NO_RULES)

    def _locate(self, index: int, data: bytes, end: int) -> tuple[int, int] | None:
        pattern = self._confirm[index]
        if end >= 0:
            start = max(0, end - WINDOW_BEFORE)
            match = pattern.search(data, start, min(len(data), end + WINDOW_AFTER))
            if match is not None:
                return match.span()  # type: ignore[no-any-return]
        match = pattern.search(data)
        return match.span() if match is not None else None


def _characters(data: bytes, offset: int) -> int:
    return len(data[:offset].decode("utf-8", "ignore"))
