"""A label for how sensitive a run is, from what its texts hold; it only rises during a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from aegis.core.outcome import Category
from aegis.runs.guard import GuardContext, RunReport, RunView, Stage
from aegis.runs.guards.options import read_options
from aegis.runs.texts import all_texts

LABEL: Final = "classification"


class _Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    categories: tuple[Category, ...] = ()
    words: tuple[str, ...] = ()


class _Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    levels: tuple[_Level, ...] = (
        _Level(name="public"),
        _Level(name="personal", categories=("pii",)),
        _Level(name="secret", categories=("secret",)),
    )


class ClassifyGuard:
    """Writes `labels.classification`: the highest level whose categories or words occur; the first is the floor."""

    name = "classify"
    stages: frozenset[Stage] = frozenset({"ingress", "result"})

    def __init__(self, levels: tuple[_Level, ...]) -> None:
        self._levels = levels
        self._rank = {level.name: rank for rank, level in enumerate(levels)}

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> ClassifyGuard:
        """From `{levels: [{name, categories, words}]}`, lowest first; raises `ValueError`."""
        levels = read_options(options, _Options).levels
        if not levels or len({level.name for level in levels}) != len(levels):
            raise ValueError("`levels` needs at least one level, and each a name of its own")
        return cls(levels)

    def check(self, view: RunView, context: GuardContext) -> RunReport:
        """`allow` with the label; it never falls below what it was."""
        found: set[Category] = set()
        words: set[str] = set()
        for text in all_texts((*view.messages, *view.documents)):
            found |= {hit.rule.category for hit in context.policy.scanner.scan(text, "result")}
            folded = text.casefold()
            words |= {word for level in self._levels for word in level.words if word.casefold() in folded}
        reached = [
            rank
            for rank, level in enumerate(self._levels)
            if not found.isdisjoint(level.categories) or not words.isdisjoint(level.words)
        ]
        rank = max([0, self._rank.get(view.labels.get(LABEL, ""), 0), *reached])
        return RunReport(labels={LABEL: self._levels[rank].name})
