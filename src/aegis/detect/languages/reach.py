"""What of a program is reached: its nodes without those in branches that are never taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tree_sitter import Node

from aegis.detect.languages.branches import MOST_BRANCHES, is_outside
from aegis.detect.languages.calls import calls_of
from aegis.detect.languages.made import CallResults
from aegis.detect.languages.names import ProgramNames
from aegis.detect.languages.syntax import CodeLanguage, code_words, text_of
from aegis.detect.languages.values import NameScope

MOST_CALLS: Final = 2_000  # of one text that are looked at


class Reached(NamedTuple):
    """The nodes that a program comes to, by what they are, with its names and what its expressions may be, if asked."""

    nodes: Mapping[str, Sequence[Node]]
    names: ProgramNames
    scope: NameScope | None = None


def reached(nodes: Mapping[str, Sequence[Node]], language: CodeLanguage, aliases: Mapping[str, str]) -> Reached:
    """What the grammar captured, without what stands where the program never comes."""
    names = ProgramNames(nodes, language, aliases, MOST_CALLS)
    branches = [one for one in nodes.get("branch", ())[:MOST_BRANCHES] if _may_be_known(one, nodes, names)]
    if not branches:
        return Reached(nodes, names)
    scope = scope_of(names, language)
    spans = scope.unreached(branches)
    if not spans:
        return Reached(nodes, names, scope)
    left = {kind: [one for one in several if is_outside(one, spans)] for kind, several in nodes.items()}
    return Reached(left, ProgramNames(left, language, aliases, MOST_CALLS))


def scope_of(names: ProgramNames, language: CodeLanguage) -> NameScope:
    """What the expressions of a program may be."""
    return NameScope(names.bounds(), CallResults(names, calls_of(language), language), language)


def _may_be_known(branch: Node, nodes: Mapping[str, Sequence[Node]], names: ProgramNames) -> bool:
    """Whether a condition holds a value that is written out, or a name that is given one: most hold neither."""
    condition = next((found for field in _CONDITIONS if (found := branch.child_by_field_name(field)) is not None), None)
    written = text_of(condition)[:_LONGEST]
    words = set(code_words(written))
    return written.lstrip("( ")[:1] in _QUOTES or not words.isdisjoint(names.told) or not words.isdisjoint(_WRITTEN)


_LONGEST: Final = 200  # characters of a condition
_CONDITIONS: Final = ("condition", "value", "subject")
_QUOTES: Final = frozenset("'\"`")
_WRITTEN: Final = frozenset({"true", "false", "True", "False", "0", "1"})
