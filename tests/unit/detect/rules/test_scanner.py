"""The scanner: one look at many texts never misses what a look at each of them finds, on both engines."""

from __future__ import annotations

import pytest

from aegis.core.outcome import Outcome, Risk
from aegis.core.text import SURFACES, TEXT_ROLES
from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.rules.engine import by_lines, relaxed
from aegis.detect.rules.model import Rule, RuleSet

RULES = load(builtin_folder())
ENGINES = ["hyperscan", "re2"]
PROSE = "the meeting moved to Thursday because the room was taken"


def scanner_of(engine: str, *patterns: str) -> Scanner:
    rule = Rule(
        id="r",
        family="f",
        title="t",
        category="policy",
        severity=Risk.HIGH,
        outcome=Outcome.BLOCK,
        maturity="stable",
        surfaces=frozenset({"content", "result"}),
        message="m",
        patterns=patterns,
    )
    return Scanner(RuleSet(rules=(rule,), digest="d", by_id={"r": rule}), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_text_in_which_a_rule_finds_something_is_never_quiet(engine: str) -> None:
    scanner = Scanner(RULES, cache=default_cache_folder(), engine=engine)
    texts = {example.text for rule in RULES.rules for example in rule.examples if example.text}
    missed = [
        (text, surface)
        for text in sorted(texts)
        for surface in SURFACES
        if scanner.scan(text, surface)
        and (
            scanner.is_quiet(f"plain\n{text}\n{PROSE}", surface)
            or (surface in TEXT_ROLES and scanner.is_quiet(f"plain\n{text}\n{PROSE}"))
        )
    ]
    assert missed == []


@pytest.mark.parametrize("engine", ENGINES)
def test_case_is_folded_in_every_script(engine: str) -> None:
    scanner = scanner_of(engine, "vergiß größe", "плохо")
    assert scanner.scan("VERGIß GRÖßE", "content")
    assert scanner.scan("ПЛОХО", "content")
    assert not scanner.is_quiet("plain\nПЛОХО")
    assert scanner.is_quiet("plain\nХОРОШО")


def test_a_lead_that_every_word_fits_is_cut_for_the_engine_alone() -> None:
    pattern = r"\b([A-Z]{6}\d{2})\b"
    assert relaxed(pattern) == r"([A-Z]\d{2})\b"
    scanner = scanner_of("hyperscan", pattern)
    assert [hit.start for hit in scanner.scan("see ABCDEF12 there", "content")] == [4]
    assert not scanner.scan("see ABCDE12 there", "content")
    assert not scanner.scan("see xABCDEF12", "content")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "pattern", [r"\Aattack", r"attack\z", r"^attack$", r"\Aattack\z", r"(?:\A|x)attack(?:\z|x)", r"\battack\b"]
)
def test_anchors_hold_at_the_ends_of_every_text(engine: str, pattern: str) -> None:
    scanner = scanner_of(engine, pattern)
    assert not scanner.is_quiet("one\nattack\ntwo")
    assert not scanner.is_quiet("attack")
    assert scanner.is_quiet("one\ntwo")
    assert scanner.scan("attack", "content")
    # A line is a text for the first look alone: the rule itself asks for the ends of the text.
    assert bool(scanner.scan("one\nattack\ntwo", "content")) is (pattern == r"\battack\b")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_text_beyond_ascii_is_never_quiet_for_its_case(engine: str) -> None:
    scanner = scanner_of(engine, "пароль")
    assert not scanner.is_quiet("one\nПАРОЛЬ")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_decoy_does_not_hide_what_stands_behind_it(engine: str) -> None:
    scanner = scanner_of(engine, r"key=[a-z]{2,60}!")
    decoy = f"key={'a' * 61}! "
    (hit,) = scanner.scan(f"{decoy}{PROSE * 20} key=secret!", "content")
    assert hit.end - hit.start == len("key=secret!")


def test_escapes_are_read_in_pairs() -> None:
    assert by_lines(r"\Aa\\Ab\z\\z\bA") == r"^a\\Ab$\\z\bA"
