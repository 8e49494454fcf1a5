"""Runs the examples that stand in rule files: what must be found, what must be found though disguised,
and what must pass."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from aegis.detect.rules.model import Example, Rule, RuleSet

# What finds: the ids of the rules that speak of an example. `aegis.policy.guards.examine.examiner` makes one.
Detect = Callable[[Example], Collection[str]]


class ExampleResult(Struct, frozen=True, kw_only=True):
    """One example and whether its rule did what the example asks; `found` are all rules that spoke."""

    rule: Rule
    example: Example
    found: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return (self.rule.id in self.found) is (self.example.kind != "pass")


def run(rules: RuleSet, detect: Detect) -> list[ExampleResult]:
    """Every example of every rule, in the order of the files."""
    return [
        ExampleResult(rule=rule, example=example, found=tuple(sorted(detect(example))))
        for rule in rules.rules
        for example in rule.examples
    ]
