"""The same call gives the same facts and the same verdict, whatever the clock says and whatever else runs."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.hostile import PIECES, ROLES, filled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aegis.core.finding import Report
from aegis.core.principal import Principal
from aegis.detect.facts import Facts
from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.sql import SqlUnreadError, analyse_sql, parse_sql
from aegis.policy.guards.content import ContentGuard
from support.cases import read_case

GUARD: Final = ContentGuard(Scanner(load(builtin_folder()), cache=default_cache_folder()))
PRINCIPAL: Final = Principal(id="p", roles=frozenset({"agent"}))
CLOCKS: Final = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
# Texts at the edge of what a parser may do: with a little less they are read, with a little more they are not.
EDGE: Final = ["char(39,65,66)", ".a()", "'a'b\"c\"``''\"\"", "a1|", "if ( ${ [[ ", "%252e", "<?php a?b:c;"]


def judge(tool: str, arguments: dict[str, Any]) -> tuple[Facts, Report]:
    case = read_case(tool, arguments)
    return case.facts, GUARD.check(case)


def shown(judged: tuple[Facts, Report]) -> tuple[str, str]:
    facts, report = judged
    effects = sorted(facts.effects)
    seen = repr((facts.signals, facts.unparsed, facts.findings, effects, facts.tier, facts.texts.limits))
    return seen, repr(report)


@pytest.fixture
def judged() -> None:
    """Have what this process makes of the calls while nothing is in the way."""
    honest()


@pytest.fixture
def busy() -> Iterator[None]:
    """A thread that takes what processor there is, and ends with the test."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            sum(range(2_000))

    thread = threading.Thread(target=work, daemon=True)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.000_1)
    thread.start()
    yield
    over.set()
    thread.join()
    sys.setswitchinterval(interval)


def lying(monkeypatch: pytest.MonkeyPatch, ticks: Callable[[], float]) -> None:
    """Clocks that say what they like."""
    for name in CLOCKS:
        monkeypatch.setattr(time, name, ticks)
        monkeypatch.setattr(time, f"{name}_ns", lambda: int(ticks() * 1e9))


def crafted() -> Iterator[tuple[str, dict[str, Any]]]:
    chance = random.Random(11)
    for piece in EDGE:
        for length in (600, 4_000, 16_000):
            for role in ("command", "code", "sql"):
                yield ROLES[role], {role: filled(piece, length)}
    for _ in range(20):
        parts = chance.sample(sorted(piece[:160] for piece in PIECES.values()), 3)
        role = chance.choice(sorted(ROLES))
        texts = [f"{filled(''.join(parts), chance.choice((90, 600, 6_000)))}{number}" for number in range(6)]
        yield ROLES[role], {role: texts}


@cache
def honest() -> list[tuple[str, str]]:
    """What this process makes of them, with nothing in the way."""
    return [shown(judge(tool, arguments)) for tool, arguments in crafted()]


@pytest.mark.claim("DET-30")
@pytest.mark.usefixtures("judged", "busy")
def test_no_contention_changes_what_is_found() -> None:
    for (tool, arguments), quiet in zip([*crafted()][::2], honest()[::2], strict=True):
        assert {shown(judge(tool, arguments)) for _ in range(2)} == {quiet}


@pytest.mark.claim("DET-30")
def test_no_clock_changes_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list(crafted())
    jumps = itertools.count()
    for ticks in (lambda: 0.0, lambda: next(jumps) * 86_400.0, lambda: -next(jumps) * 86_400.0):
        with monkeypatch.context() as lies:
            lying(lies, ticks)
            assert [shown(judge(tool, arguments)) for tool, arguments in calls] == honest()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.one_of(st.sampled_from(EDGE), st.text(min_size=1, max_size=8)), min_size=1, max_size=4),
    st.sampled_from(sorted(ROLES)),
    st.sampled_from([90, 600, 5_000]),
)
def test_no_text_is_judged_twice_in_two_ways(parts: list[str], role: str, length: int) -> None:
    arguments = {role: filled("".join(parts), length)}
    assert shown(judge(ROLES[role], arguments)) == shown(judge(ROLES[role], arguments))


# The seeds of hashes and the depth of the stack differ from process to process, as clocks do.
PROGRAM: Final = """
import hashlib
from tests.property.test_same_verdict import honest

def deep(levels):
    return honest() if levels == 0 else deep(levels - 1)

print(hashlib.sha256(repr(deep(300)).encode()).hexdigest())
"""


@pytest.mark.claim("DET-30")
def test_every_process_finds_the_same() -> None:
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    other = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "tests"},
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
    )
    assert other.stdout.strip() == hashlib.sha256(repr(honest()).encode()).hexdigest()


@pytest.mark.claim("DET-31")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM t" + " JOIN t" * 2_000,  # every join makes the parser read the others twice
        "SELECT " + "(" * 81 + "1" + ")" * 81,
        "SELECT " + "[" * 3_000,
        "SELECT " + "NOT " * 4_000 + "1",
        "SELECT " + "- " * 8_000 + "1",
        "SELECT " + "CASE WHEN 1 THEN " * 81 + "1" + " END" * 81,
    ],
)
def test_statements_that_cost_the_parser_more_than_their_length_are_not_read(text: str) -> None:
    for dialect in (None, "mysql", "postgres"):
        with pytest.raises(SqlUnreadError):
            parse_sql(text, dialect)
    facts = analyse_sql(text)
    assert facts.too_long
    assert facts.writes


@pytest.mark.claim("DET-31")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 WHERE 1" + " OR 1" * 3_200,
        "SELECT 1 WHERE 1 OR a" + "->a" * 4_000,
        "SELECT 1 WHERE 1 OR a" + "[1]" * 4_000,
        "SELECT 1 WHERE " + "(1=1 OR " * 79 + "1" + ")" * 79,
        "SELECT * FROM (SELECT 1 UNION " * 70 + "SELECT 1" + ")" * 70,
    ],
)
def test_what_shows_a_finding_is_written_once(text: str) -> None:
    facts = analyse_sql(text)
    assert not facts.too_long
    assert len(facts.signals) <= 1


def test_what_stands_behind_more_than_is_looked_at_is_not_harmless() -> None:
    hidden = "SELECT (WITH d AS (DELETE FROM t RETURNING 1) SELECT 1)" + "=a" * 8_000
    assert analyse_sql(hidden).too_long


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + ", ".join(f"CASE WHEN a = {number} THEN {number} END" for number in range(200)),
        "INSERT INTO t VALUES " + ", ".join(f"({number}, 'name {number}', NULL)" for number in range(500)),
        "SELECT 1 FROM t" + "".join(f" JOIN u{number} ON u{number}.id = t.id" for number in range(60)),
        "SELECT * FROM a JOIN b JOIN c JOIN d",
        "SELECT * FROM t WHERE id IN (" + ", ".join(map(str, range(2_000))) + ")",
    ],
)
def test_ordinary_long_statements_are_read(text: str) -> None:
    facts = analyse_sql(text)
    assert facts.parsed
    assert not facts.too_long
