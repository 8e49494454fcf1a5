"""However a large call is made, what is parsed, decoded and matched of it is bounded: work is counted, not time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from benchmarks.climb import shapes
from benchmarks.hostile import PIECES, ROLES, calls, filled
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

from aegis.core.finding import Finding, Report
from aegis.core.outcome import Outcome, Verdict
from aegis.core.principal import Principal
from aegis.detect import extract
from aegis.detect.code import parse_code
from aegis.detect.extract import MOST_POINTERS
from aegis.detect.facts import MOST_EFFORT, Facts, ReadLimits
from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.shell.tree import parse_shell
from aegis.detect.shell.unquote import find_unresolved
from aegis.detect.sql import parse_sql
from aegis.detect.views import MAX_TOTAL, MOST_DECODED
from aegis.policy.guards.base import ResultCase
from aegis.policy.guards.content import ContentGuard
from aegis.policy.guards.result import ResultContentGuard
from support.cases import facts_of, read_case

SIZE = 100_000  # beyond every budget, and quicker than a MiB
MOST_SCANNED = 4  # times that the bytes of a call and its readings pass through the engine
SCANNER = Scanner(load(builtin_folder()), cache=default_cache_folder())
PRINCIPAL = Principal(id="p", roles=frozenset({"agent"}))


class Work:
    """What parsers were given while a call was judged."""

    def __init__(self) -> None:
        self.parsed = self.commands = self.calls = 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    counted = Work()

    def count(parse: Callable[..., Any]) -> Callable[..., Any]:
        def counting(text: str, *args: Any, **named: Any) -> Any:
            counted.parsed += len(text)
            parsed = parse(text, *args, **named)
            counted.commands += len(getattr(parsed, "commands", ()))
            counted.calls += len(getattr(parsed, "calls", ()))
            return parsed

        return counting

    monkeypatch.setattr("aegis.detect.shell.shell.parse_shell", count(parse_shell))
    monkeypatch.setattr("aegis.detect.code.parse_code", count(parse_code))
    monkeypatch.setattr("aegis.detect.sql.parse_sql", count(parse_sql))
    yield counted


def report_on(tool: str, arguments: dict[str, Any], facts: Facts) -> Report:
    return ContentGuard(SCANNER).check(read_case(tool, arguments, facts))


def limits_of(findings: tuple[Finding, ...]) -> set[tuple[str, Outcome]]:
    return {(finding.rule, finding.outcome) for finding in findings if finding.category == "resource_limit"}


def check(work: Work, facts: Facts) -> None:
    assert work.parsed <= MOST_EFFORT
    assert work.commands + work.calls <= MOST_EFFORT // 64
    # The last text that is begun may be read to its own bound.
    assert sum(len(view.value) for view in facts.views) <= MOST_DECODED + MAX_TOTAL


@pytest.mark.claim("DET-12")
@pytest.mark.parametrize("piece", PIECES)
def test_no_shape_of_a_call_makes_parsers_and_decoders_read_more(piece: str, work: Work) -> None:
    for _, tool, arguments in calls(PIECES[piece], SIZE, "command", "sql", "code", "q"):
        work.__init__()  # type: ignore[misc]
        check(work, facts_of(tool, arguments))


FRAGMENTS = st.lists(
    st.one_of(st.sampled_from([piece[:200] for piece in PIECES.values()]), st.text(min_size=1, max_size=6)),
    min_size=1,
    max_size=4,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(FRAGMENTS, st.sampled_from(sorted(ROLES)), st.sampled_from([40, 300, 2_000, 16_380, 60_000]))
def test_no_mixture_does_either(work: Work, fragments: list[str], role: str, length: int) -> None:
    work.__init__()  # type: ignore[misc]
    text = filled("".join(fragments), length)
    facts = facts_of(ROLES[role], {role: [f"{text}{number}" for number in range(min(2_000, SIZE // length))]})
    target(float(work.parsed), label="parsed")
    target(float(sum(len(view.value) for view in facts.views)), label="decoded")
    check(work, facts)


def test_no_step_of_the_climb_does_either(work: Work) -> None:
    source = shapes(7)
    shape = next(source)
    for _ in range(8):
        work.__init__()  # type: ignore[misc]
        facts = facts_of(*shape.call())
        check(work, facts)
        shape = source.send(float(work.parsed))


@pytest.mark.claim("DET-12")
@pytest.mark.parametrize(
    ("tool", "argument", "text"),
    [
        ("bash", "command", "echo $(id) | tee out; "),
        ("run_sql", "sql", "SELECT a FROM t WHERE b = 1; "),
        ("python", "code", "value = compute(1)\n"),
    ],
)
def test_more_parsing_than_a_call_may_ask_for_refuses_it(tool: str, argument: str, text: str) -> None:
    arguments = {argument: [filled(text, 12_000) + str(number) for number in range(9)]}
    report = report_on(tool, arguments, facts_of(tool, arguments))
    assert report.outcome is Outcome.BLOCK
    assert ("limit-effort", Outcome.BLOCK) in limits_of(report.findings)
    broken = {argument: [f"{text} ([{{<([{{<([{{<([{{< {number}" for number in range(2_000)]}
    assert limits_of(report_on(tool, broken, facts_of(tool, broken)).findings)
    few = {argument: [f"{text}{number}" for number in range(40)]}
    assert not limits_of(report_on(tool, few, facts_of(tool, few)).findings)


@pytest.mark.claim("DET-12")
def test_what_a_tool_goes_to_is_decoded_or_refused_and_data_is_noted() -> None:
    paths = {"path": [f"a%41b/{number}" for number in range(3_000)]}
    assert limits_of(report_on("read_file", paths, facts_of("read_file", paths)).findings) == {
        ("limit-decoding", Outcome.BLOCK)
    }
    letters = {"body": [f"fish &amp; chips {number}" for number in range(3_000)]}
    facts = facts_of("send_email", letters)
    assert report_on("send_email", letters, facts).outcome is Outcome.ALLOW
    assert limits_of(facts.findings) == {("limit-decoding", Outcome.ALLOW)}


def test_paths_that_read_plainly_cost_no_decoding() -> None:
    paths = {"path": [f"src/module_{number}/main.py" for number in range(6_000)]}
    assert report_on("read_file", paths, facts_of("read_file", paths)).verdict is Verdict.COMPLIANT


@pytest.mark.claim("DET-12")
def test_a_long_key_above_many_values_is_refused_before_it_is_copied_for_each() -> None:
    arguments = {"k" * 300_000: ["a b c"] * 9_000}
    facts = facts_of("t", arguments)
    assert sum(len(text.path) for text in facts.texts.strings) <= MOST_POINTERS
    assert ("limit-bytes", Outcome.BLOCK) in limits_of(report_on("t", arguments, facts).findings)
    assert find_unresolved({"k" * 300_000: ["${x}"] * 9_000}) == ()


@pytest.mark.parametrize("piece", PIECES)
def test_results_are_bounded_as_calls_are(piece: str) -> None:
    scanned = 0

    class Counting:
        rules, reads_words, rules_for, spans = SCANNER.rules, SCANNER.reads_words, SCANNER.rules_for, SCANNER.spans

        def scan(self, text: str, surface: Any, **given: Any) -> Any:
            nonlocal scanned
            scanned += len(text)
            return SCANNER.scan(text, surface, **given)

        def is_quiet(self, together: str, surface: Any) -> bool:
            nonlocal scanned
            scanned += len(together)
            return SCANNER.is_quiet(together, surface)

    for _, tool, value in calls(PIECES[piece], SIZE // 2, "q"):
        scanned = 0
        texts = extract(value, ReadLimits())
        case = ResultCase(
            tool=tool, server=None, result=value, texts=texts, principal=PRINCIPAL, agent="", session="", entry=None,
            now=0,
        )  # fmt: skip
        ResultContentGuard(Counting()).check_result(case)  # type: ignore[arg-type]
        assert scanned <= MOST_SCANNED * SIZE + MOST_DECODED + MAX_TOTAL
