"""A screen occurs wherever its pattern does: what the first look at a stream passes over is clean."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.detect.rules import RuleSet, Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.rules.engine import Engine, EnginePattern, make_engine
from aegis.detect.rules.scanner import screen
from aegis.policy.guards.stream import Prefilter

PROSE = "what the report says about the second quarter, in so many words and with nothing else in between. " * 4
FIGURES = "17,4,2024,881\n" * 40


@cache
def rules() -> RuleSet:
    return load(builtin_folder())


def patterns(*categories: str) -> list[EnginePattern]:
    return [
        EnginePattern(text, rule.case_sensitive, lines=True)
        for rule in rules().rules
        if rule.category in categories
        for text in rule.patterns
    ]


@cache
def engine(pattern: EnginePattern) -> Engine:
    return make_engine([pattern], cache=None)


def changed() -> list[EnginePattern]:
    return [one for one in patterns("pii", "secret", "prompt_injection") if screen(one) != one]


def spelled(pattern: EnginePattern) -> re.Pattern[str]:
    """A pattern as Python's own engine spells it, which knows no classes of Unicode."""
    return re.compile(pattern.text.replace("\\z", "\\Z").replace(r"[^\pL]", r"[\W\d_]"))


def generated() -> st.SearchStrategy[tuple[EnginePattern, str]]:
    def texts(pattern: EnginePattern) -> st.SearchStrategy[tuple[EnginePattern, str]]:
        return st.tuples(st.just(pattern), st.from_regex(spelled(pattern)))

    return st.sampled_from(changed()).flatmap(texts)


@settings(deadline=None)  # a pattern is compiled where it is first used
@given(generated())
def test_a_screen_occurs_wherever_its_pattern_does(case: tuple[EnginePattern, str]) -> None:
    pattern, text = case
    data = text.encode("utf-8", "replace")
    assert engine(screen(pattern)).hits(data) or not engine(pattern).hits(data)


def test_texts_can_be_made_for_each_pattern_that_has_a_screen() -> None:
    assert all(spelled(pattern).groups >= 0 for pattern in changed())


def test_most_patterns_have_a_screen() -> None:
    for category in ("pii", "secret"):
        own = patterns(category)
        assert sum(screen(one) != one for one in own) > len(own) * 0.8


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (r"\b(\d{3}-\d{2})\b", r"(\d{3}-\d{2})"),
        (r"(?:^|[^\w.-])(abc)(?:[^\w]|\z)", "(abc)"),
        (r"(?:^|[^\w])[\w.\]-]{0,60}?(?:api|app)[\w-]{0,30}?(?:key|token)=x", "(?:key|token)=x"),
        (r"\b([A-Z]{6}\d{2}[A-Z]\d{2}[A-Z]\d{3}[A-Z])\b", r"\d{2}[A-Z]\d{2}[A-Z]\d{3}[A-Z]"),
        # What repeats, divides or means something else is left as it is.
        (r"(?:^|[a-z])+x\d", r"(?:^|[a-z])+x\d"),
        (r"\bone\b|\btwo\b", r"\bone\b|\btwo\b"),
        (r"path\\b", r"path\\b"),
        (r"([A-Z]{2}\d{2}[a-z]{4})", r"([A-Z]{2}\d{2}[a-z]{4})"),
        (r"[a-z]{0,3}", r"[a-z]{0,3}"),
    ],
)
def test_a_screen_leaves_out_how_a_match_begins_and_ends(text: str, wanted: str) -> None:
    assert screen(EnginePattern(text, case_sensitive=True)).text == wanted


@pytest.mark.parametrize("around", [PROSE, FIGURES, "Ærøskøbing " * 60])
def test_every_example_that_the_scanner_finds_passes_the_prefilter(around: str) -> None:
    scanner = Scanner(rules(), cache=default_cache_folder())
    prefilters = {name: Prefilter(scanner, {name}) for name in ("pii", "secret", "prompt_injection")}
    looked_at = 0
    for rule in rules().rules:
        for example in rule.examples:
            said = example.text if example.text is not None else example.result
            if rule.category not in prefilters or not isinstance(said, str):
                continue
            text = f"{around}\n{said}\n{around}"
            categories = {hit.rule.category for hit in scanner.scan(text, "result")}
            if rule.category in categories:
                looked_at += 1
                assert rule.category in prefilters[rule.category].found(text.encode()), (rule.id, example.line)
    assert looked_at > 60
