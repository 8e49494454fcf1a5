"""Every example of every built-in rule, through facts and guards, on both engines."""

from __future__ import annotations

import pytest

from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.rules.testing import run
from aegis.policy.guards.examine import examiner

RULES = load(builtin_folder())


@pytest.mark.parametrize("engine", ["hyperscan", "re2"])
def test_every_rule_does_what_its_examples_say(engine: str) -> None:
    scanner = Scanner(RULES, cache=default_cache_folder(), engine=engine)
    wrong = [
        f"{result.rule.id}: {result.example.kind}: {result.example.text or result.example.result}"
        for result in run(RULES, examiner(scanner))
        if not result.passed
    ]
    assert wrong == []


def test_a_failing_example_is_told() -> None:
    results = run(RULES, lambda example: ())
    assert {result.passed for result in results if result.example.kind == "match"} == {False}
    assert {result.passed for result in results if result.example.kind == "pass"} == {True}
