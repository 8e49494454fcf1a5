"""Detector rules as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from aegis.core.outcome import Category, Outcome, Risk
from aegis.core.text import Surface

Maturity = Literal["stable", "sandbox"]
ExampleKind = Literal["match", "evade", "pass"]


class Example(Struct, frozen=True, kw_only=True):
    """One example of a rule: a bare text on the rule's first surface, or a whole call, or a result."""

    kind: ExampleKind
    surface: Surface
    text: str | None = None
    tool: str = "example"
    arguments: Mapping[str, Any] | None = None
    result: Any = None
    line: int = 0


class Rule(Struct, frozen=True, kw_only=True):
    """One detector rule: linear-time patterns, or the names of facts, on certain surfaces.

    Effects of a rule file (`delete backup all`) are facts here: the names of all that its patterns stand for.

    A rule of maturity `sandbox` is recorded and decides nothing. `least` is how many of its patterns
    must occur close together in one text, and of the first `anchors` at least one. `check` and
    `entropy` (bits a character) judge the first group of a match, or all of it. A text that one of `unless` matches is
    none, whatever occurs in it. Of a `likely` rule what is found in a result is fenced, and not withheld. One of
    results that is `handed_on` has a call held as well that writes the same for other readers.
    """

    id: str
    family: str
    title: str
    category: Category
    severity: Risk
    outcome: Outcome
    maturity: Maturity
    surfaces: frozenset[Surface]
    message: str
    patterns: tuple[str, ...] = ()
    case_sensitive: bool = False
    likely: bool = False
    handed_on: bool = False
    least: int = 1
    anchors: int = 0
    check: str = ""
    unless: tuple[str, ...] = ()
    entropy: float = 0.0
    facts: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    file: str = ""
    line: int = 0


class RuleSet(Struct, frozen=True, kw_only=True):
    """Rules in the order of their ids; `digest` changes with anything that changes a verdict."""

    rules: tuple[Rule, ...] = ()
    digest: str = ""
    by_id: Mapping[str, Rule] = field(default_factory=dict)
