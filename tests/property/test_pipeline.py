"""The pipeline joins guards without losing anything, whatever they report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.config.compile_tools import compile_routes
from aegis.config.config import load_config
from aegis.core.canonical import canonical
from aegis.core.finding import Patch, Report
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.detect.facts import ReadLimits
from aegis.detect.rules import Scanner
from aegis.detect.rules.load import rule_set
from aegis.policy.guards.base import Case
from aegis.policy.guards.rate import Rate, Windows
from aegis.policy.model import Incoming
from aegis.policy.policy import Policy
from support.cases import AGENT

Answer = Callable[[dict[str, Any]], Report]
ROUTES = compile_routes(load_config().settings)
SCANNER = Scanner(rule_set([]))


class Scripted:
    """A guard that reports by a function of the arguments."""

    def __init__(self, name: str, answer: Answer):
        self.name = name
        self.answer = answer
        self.seen: list[tuple[dict[str, Any], Report]] = []

    def check(self, case: Case) -> Report:
        report = self.answer(case.arguments)
        self.seen.append((case.arguments, report))
        return report


def policy(guards: list[Scripted], observed: set[str]) -> Policy:
    return Policy(
        digest="sha-256:0",
        guards=[(guard, guard.name in observed) for guard in guards],
        result_guards=[],
        routes=ROUTES,
        limits=ReadLimits(),
        evidence="fail-closed",
        mode="enforce",
        scanner=SCANNER,
        windows=Windows(),
    )


def call(arguments: dict[str, Any]) -> Incoming:
    return Incoming(
        tool="t", server=None, arguments=arguments, principal=AGENT, agent="bot", session="", call_id="c", now=0
    )


def answers(name: str) -> st.SearchStrategy[Answer]:
    """Guards that replace values of their own alphabet, or demand an outcome by what they see."""

    def build(outcome: Outcome, word: str, new: str, verdict: Verdict, risk: Risk) -> Answer:
        def answer(arguments: dict[str, Any]) -> Report:
            hit = [key for key, value in arguments.items() if value == word]
            if not hit:
                return Report(guard=name)
            patches = tuple(Patch(path=f"/{key}", value=new) for key in hit) if outcome is Outcome.SANITIZE else ()
            return Report(
                guard=name, outcome=outcome, verdict=verdict, risk=risk, reason=Reason.POLICY_DENIED, patches=patches
            )

        return answer

    letters = st.sampled_from("abcde")
    return st.builds(build, st.sampled_from(Outcome), letters, letters, st.sampled_from(Verdict), st.sampled_from(Risk))


ARGUMENTS = st.dictionaries(st.sampled_from("xyz"), st.sampled_from("abcde"), max_size=3)


@settings(max_examples=150, deadline=None)
@given(arguments=ARGUMENTS, made=st.tuples(answers("g0"), answers("g1"), answers("g2")))
def test_what_may_run_was_looked_at_by_every_guard_and_nothing_is_left_to_patch(
    arguments: dict[str, Any], made: tuple[Answer, ...]
) -> None:
    guards = [Scripted(f"g{number}", answer) for number, answer in enumerate(made)]
    evaluation = policy(guards, set()).evaluate(call(dict(arguments)))
    seen = [report for guard in guards for _, report in guard.seen]
    assert evaluation.combined.outcome >= max(report.outcome for report in seen)
    assert evaluation.combined.verdict >= max(report.verdict for report in seen)
    assert evaluation.combined.risk >= max(report.risk for report in seen)
    if evaluation.combined.outcome is Outcome.BLOCK:
        assert (evaluation.arguments, evaluation.canonical) == (arguments, None)
        return
    for guard in guards:
        last, report = guard.seen[-1]
        if evaluation.canonical is None:
            assert last == arguments
        else:
            # The last round either saw exactly what will run, or asked for exactly that.
            assert canonical(evaluation.arguments) == evaluation.canonical
            assert last == evaluation.arguments
        assert report.outcome <= evaluation.combined.outcome
    assert (evaluation.canonical is not None) == any(report.patches for report in seen)


@settings(max_examples=100, deadline=None)
@given(
    arguments=ARGUMENTS, made=st.tuples(answers("g0"), answers("g1")), observe=st.sets(st.sampled_from(["g0", "g1"]))
)
def test_another_enforced_guard_never_loosens_and_observing_never_tightens(
    arguments: dict[str, Any], made: tuple[Answer, ...], observe: set[str]
) -> None:
    def outcome(names: list[str], observed: set[str]) -> Outcome:
        guards = [Scripted("quiet", lambda _: Report(guard="quiet"))]
        guards += [Scripted(f"g{number}", answer) for number, answer in enumerate(made) if f"g{number}" in names]
        return policy(guards, observed).evaluate(call(dict(arguments))).combined.outcome

    every = outcome(["g0", "g1"], observe)
    enforced = [name for name in ("g0", "g1") if name not in observe]
    assert every == outcome(enforced, set())
    # A patch of one guard can take away what another would have refused; nothing else loosens.
    first = [report.outcome for report in (answer(dict(arguments)) for answer in made)]
    if Outcome.SANITIZE not in first:
        assert outcome(["g0", "g1"], set()) >= outcome(["g0"], set())


@given(
    times=st.lists(st.integers(0, 200), min_size=1, max_size=80).map(sorted),
    limit=st.integers(1, 6),
    seconds=st.integers(1, 30),
)
def test_a_rate_lets_through_exactly_what_a_full_count_would(times: list[int], limit: int, seconds: int) -> None:
    windows, rate = Windows(), Rate(limit=limit, seconds=seconds)
    passed: list[int] = []
    for second in times:
        now = second * 1_000_000
        recent = [one for one in passed if one > now - seconds * 1_000_000]
        wait = windows.charge("a", now, rate)
        assert (wait == 0) == (len(recent) < limit)
        if wait == 0:
            passed.append(now)
        else:
            later = [one for one in passed if one > now + wait - seconds * 1_000_000]
            assert len(later) < limit
