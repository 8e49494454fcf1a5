from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from aegis.core.combine import MAX_NAMED, MISSING_RULE, Combined, combine
from aegis.core.finding import Finding, Patch, Report
from aegis.core.outcome import EvidencePolicy, Outcome, Reason, Risk, Verdict

GUARDS = ("registry", "rate", "schema", "content", "cedar")
POLICIES: tuple[EvidencePolicy, ...] = get_args(EvidencePolicy)

findings = st.builds(
    Finding,
    guard=st.sampled_from(GUARDS),
    rule=st.sampled_from(("r1", "r2")),
    category=st.just("policy"),
    severity=st.sampled_from(Risk),
    outcome=st.sampled_from(Outcome),
)


@cache  # a strategy that is built anew for each example takes longer than all that is drawn from it
def reports_of(guard: str) -> st.SearchStrategy[Report]:
    return st.builds(
        Report,
        guard=st.just(guard),
        outcome=st.sampled_from(Outcome),
        verdict=st.sampled_from(Verdict),
        reason=st.sampled_from(Reason),
        risk=st.sampled_from(Risk),
        findings=st.lists(findings, max_size=2).map(tuple),
        patches=st.lists(st.builds(Patch, path=st.just("/a"), value=st.integers()), max_size=2).map(tuple),
        missing=st.lists(st.sampled_from(("/a", "/b")), max_size=2).map(tuple),
        retry_after=st.none() | st.integers(0, 60),
    )


@st.composite
def complete(draw: st.DrawFn) -> tuple[list[Report], list[str]]:
    expected = draw(st.lists(st.sampled_from(GUARDS), min_size=1, unique=True))
    return [draw(reports_of(guard)) for guard in expected], expected


policies = st.sampled_from(POLICIES)
anything = st.lists(st.sampled_from((*GUARDS, "stranger")).flatmap(reports_of), max_size=6)
names = st.lists(st.sampled_from(GUARDS), max_size=5)


@given(complete(), policies)
def test_the_most_restrictive_report_wins_on_every_axis(
    case: tuple[list[Report], list[str]], policy: EvidencePolicy
) -> None:
    reports, expected = case
    combined = combine(reports, expected, policy)
    assert combined.outcome >= max(report.outcome for report in reports)
    assert combined.verdict >= max(report.verdict for report in reports)
    assert combined.risk == max(report.risk for report in reports)


@given(complete(), policies, st.data())
def test_the_order_of_complete_reports_changes_nothing(
    case: tuple[list[Report], list[str]], policy: EvidencePolicy, data: st.DataObject
) -> None:
    reports, expected = case
    shuffled = data.draw(st.permutations(reports))
    assert combine(shuffled, expected, policy) == combine(reports, expected, policy)


@given(anything, names, policies)
def test_the_order_of_any_reports_changes_nothing(
    reports: list[Report], expected: list[str], policy: EvidencePolicy
) -> None:
    assert combine(reports[::-1], expected, policy) == combine(reports, expected, policy)


def _fits(reports: Sequence[Report], expected: Sequence[str]) -> bool:
    return bool(expected) and sorted(report.guard for report in reports) == sorted(set(expected)) == sorted(expected)


@given(anything, names, policies)
def test_anything_but_one_report_for_each_expected_guard_refuses(
    reports: list[Report], expected: list[str], policy: EvidencePolicy
) -> None:
    if _fits(reports, expected):
        return
    combined = combine(reports, expected, policy)
    assert combined.outcome is Outcome.BLOCK
    assert combined.reason is Reason.UNAVAILABLE
    assert combined.verdict >= Verdict.INSUFFICIENT_EVIDENCE
    assert combined.verdict >= max((report.verdict for report in reports), default=Verdict.COMPLIANT)
    assert combined.risk >= max((Risk.HIGH, *(report.risk for report in reports)))
    assert combined.patches == ()
    assert [report.guard for report in combined.reports] == list(dict.fromkeys(expected))


@given(complete(), policies, st.data())
def test_a_guard_that_falls_silent_never_loosens(
    case: tuple[list[Report], list[str]], policy: EvidencePolicy, data: st.DataObject
) -> None:
    reports, expected = case
    silenced = data.draw(st.sampled_from(reports))
    fewer = combine([report for report in reports if report is not silenced], expected, policy)
    assert fewer.outcome is Outcome.BLOCK


def _raise(report: Report, outcome: Outcome) -> Report:
    return structs.replace(report, outcome=max(report.outcome, outcome))


@given(complete(), policies, st.data(), st.sampled_from(Outcome))
def test_combining_is_monotone(
    case: tuple[list[Report], list[str]], policy: EvidencePolicy, data: st.DataObject, outcome: Outcome
) -> None:
    reports, expected = case
    at = data.draw(st.integers(0, len(reports) - 1))
    stricter = [_raise(report, outcome) if index == at else report for index, report in enumerate(reports)]
    assert combine(stricter, expected, policy).outcome >= combine(reports, expected, policy).outcome


@given(complete(), policies)
def test_the_evidence_policy_answers_for_missing_evidence_alone(
    case: tuple[list[Report], list[str]], policy: EvidencePolicy
) -> None:
    reports, expected = case
    complete_evidence = [structs.replace(report, missing=()) for report in reports]
    outcomes = {combine(complete_evidence, expected, other).outcome for other in POLICIES}
    assert outcomes == {max(report.outcome for report in reports)}
    floor = {
        "fail-closed": Outcome.BLOCK,
        "require-approval": Outcome.REQUIRE_APPROVAL,
        "defer": Outcome.REQUIRE_APPROVAL,
        "fail-open-with-attestation": Outcome.ALLOW,
    }[policy]
    combined = combine(reports, expected, policy)
    lacking = any(report.missing for report in reports)
    assert combined.outcome == max(*(report.outcome for report in reports), floor if lacking else Outcome.ALLOW)
    if lacking:
        assert combined.verdict >= Verdict.INSUFFICIENT_EVIDENCE


GRAVEST = (
    Reason.ATTACK_DETECTED, Reason.UNTRUSTED_VALUE, Reason.UNLICENSED, Reason.SCOPE_VIOLATION, Reason.SENSITIVE_DATA,
    Reason.IRREVERSIBLE, Reason.APPROVAL_REQUIRED, Reason.DEFERRED,
)  # fmt: skip


@given(complete(), policies)
def test_of_the_reports_that_demand_the_outcome_the_gravest_or_the_first_gives_the_reason(
    case: tuple[list[Report], list[str]], policy: EvidencePolicy
) -> None:
    reports, expected = case
    combined = combine(reports, expected, policy)
    given = [reason for report in reports if (reason := _demanded(report, combined, policy)) is not None]
    if combined.outcome is Outcome.ALLOW:
        assert combined.reason is Reason.NONE
    else:
        assert combined.reason is next((reason for reason in GRAVEST if reason in given), given[0])


def _demanded(report: Report, combined: Combined, policy: EvidencePolicy) -> Reason | None:
    """The reason that a report gives for the outcome, where it demands it."""
    if report.outcome is combined.outcome:
        return report.reason
    alone = combine([structs.replace(report, outcome=Outcome.ALLOW)], [report.guard], policy).outcome
    lacking = Reason.DEFERRED if policy == "defer" else Reason.INSUFFICIENT_EVIDENCE
    return lacking if report.missing and alone is combined.outcome else None


@given(complete(), policies)
def test_findings_patches_and_missing_evidence_keep_the_configured_order(
    case: tuple[list[Report], list[str]], policy: EvidencePolicy
) -> None:
    reports, expected = case
    combined = combine(reports[::-1], expected, policy)
    own = tuple(finding for finding in combined.findings if finding.rule != MISSING_RULE)
    assert own == tuple(finding for report in reports for finding in report.findings)
    assert combined.patches == tuple(patch for report in reports for patch in report.patches)
    assert combined.missing == tuple(name for report in reports for name in report.missing)
    assert [report.guard for report in combined.reports] == [report.guard for report in reports]
    assert [report for report in combined.reports if not report.missing] == [one for one in reports if not one.missing]


@pytest.mark.claim("IDN-11")
@settings(deadline=None)
@given(complete(), policies)
def test_whoever_missed_evidence_is_named_with_what_it_missed_and_what_was_answered(
    case: tuple[list[Report], list[str]], policy: EvidencePolicy
) -> None:
    reports, expected = case
    combined = combine(reports, expected, policy)
    for before, after in zip(reports, combined.reports, strict=True):
        named = [finding for finding in after.findings if finding.rule == MISSING_RULE]
        assert len(named) == min(MAX_NAMED, len(set(before.missing)))
        assert {finding.path for finding in named if finding.path} <= set(before.missing)
        assert all(finding.guard == before.guard for finding in named)
        if before.missing:
            assert after.verdict >= Verdict.INSUFFICIENT_EVIDENCE
            assert {finding.outcome for finding in named} == {_answer(policy)}
            assert after.outcome is max(before.outcome, _answer(policy))
    assert combine(combined.reports, expected, policy) == combined


def _answer(policy: EvidencePolicy) -> Outcome:
    return combine([Report(guard="a", missing=("task",))], ["a"], policy).outcome


@given(complete(), policies)
def test_the_longest_wait_is_told(case: tuple[list[Report], list[str]], policy: EvidencePolicy) -> None:
    reports, expected = case
    waits = [report.retry_after for report in reports if report.retry_after is not None]
    assert combine(reports, expected, policy).retry_after == (max(waits) if waits else None)
