from __future__ import annotations

import pytest

from aegis.core.combine import combine, silent
from aegis.core.finding import Finding, Patch, Report
from aegis.core.outcome import EvidencePolicy, Outcome, Reason, Risk, Verdict

FINDING = Finding(guard="a", rule="r", category="policy", severity=Risk.HIGH, outcome=Outcome.BLOCK)


def test_all_clear_allows() -> None:
    combined = combine([Report(guard="a"), Report(guard="b")], ["a", "b"], "fail-closed")
    assert (combined.outcome, combined.verdict, combined.reason, combined.risk) == (
        Outcome.ALLOW,
        Verdict.COMPLIANT,
        Reason.NONE,
        Risk.LOW,
    )
    assert (combined.findings, combined.patches, combined.missing, combined.retry_after) == ((), (), (), None)


def test_no_guard_at_all_refuses() -> None:
    combined = combine([], [], "fail-open-with-attestation")
    assert (combined.outcome, combined.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)
    assert combined.verdict is Verdict.INSUFFICIENT_EVIDENCE
    assert combined.risk is Risk.HIGH
    assert combined.reports == ()


def test_reports_without_any_expected_guard_refuse() -> None:
    combined = combine([Report(guard="a")], [], "fail-closed")
    assert combined.outcome is Outcome.BLOCK
    assert combined.reports == ()


def test_a_silent_guard_is_replaced_by_a_refusal_in_its_place() -> None:
    combined = combine([Report(guard="b", risk=Risk.CRITICAL)], ["a", "b"], "fail-closed")
    assert combined.reports == (silent("a"), Report(guard="b", risk=Risk.CRITICAL))
    assert combined.risk is Risk.CRITICAL


def test_silence_reads_as_a_refusal_for_lack_of_evidence() -> None:
    report = silent("a")
    assert report == Report(
        guard="a",
        outcome=Outcome.BLOCK,
        verdict=Verdict.INSUFFICIENT_EVIDENCE,
        reason=Reason.UNAVAILABLE,
        risk=Risk.HIGH,
    )


def test_two_reports_of_one_guard_count_as_silence() -> None:
    loose, strict = Report(guard="a"), Report(guard="a", verdict=Verdict.VIOLATION, findings=(FINDING,))
    combined = combine([strict, loose], ["a"], "fail-closed")
    assert combined.outcome is Outcome.BLOCK
    assert combined.verdict is Verdict.VIOLATION
    assert combined.reports == (silent("a"),)
    assert combined.findings == ()


def test_an_unexpected_guard_refuses_and_is_left_out() -> None:
    combined = combine(
        [Report(guard="a", findings=(FINDING,)), Report(guard="x", missing=("/p",))], ["a"], "fail-closed"
    )
    assert combined.outcome is Outcome.BLOCK
    assert [report.guard for report in combined.reports] == ["a"]
    assert combined.findings == (FINDING,)
    assert combined.missing == ()


def test_missing_evidence_is_named_even_where_reports_are_incomplete() -> None:
    combined = combine(
        [Report(guard="a", missing=("/p",), patches=(Patch(path="/p", value=1),))], ["a", "b"], "fail-closed"
    )
    assert combined.missing == ("/p",)
    assert combined.patches == ()


def test_a_guard_that_is_expected_twice_refuses() -> None:
    combined = combine([Report(guard="a")], ["a", "a"], "fail-closed")
    assert combined.outcome is Outcome.BLOCK
    assert combined.reports == (Report(guard="a"),)


@pytest.mark.parametrize(
    ("policy", "outcome", "reason"),
    [
        ("fail-closed", Outcome.BLOCK, Reason.INSUFFICIENT_EVIDENCE),
        ("require-approval", Outcome.REQUIRE_APPROVAL, Reason.INSUFFICIENT_EVIDENCE),
        ("fail-open-with-attestation", Outcome.ALLOW, Reason.NONE),
    ],
)
def test_missing_evidence_is_answered_by_the_policy(policy: EvidencePolicy, outcome: Outcome, reason: Reason) -> None:
    combined = combine([Report(guard="a", missing=("/to",))], ["a"], policy)
    assert (combined.outcome, combined.reason) == (outcome, reason)
    assert combined.verdict is Verdict.INSUFFICIENT_EVIDENCE
    assert combined.missing == ("/to",)


@pytest.mark.parametrize("outcome", [Outcome.REQUIRE_APPROVAL, Outcome.BLOCK])
def test_failing_open_lowers_no_demand_of_a_guard(outcome: Outcome) -> None:
    report = Report(
        guard="a", outcome=outcome, verdict=Verdict.VIOLATION, reason=Reason.ATTACK_DETECTED, missing=("/p",)
    )
    combined = combine([report], ["a"], "fail-open-with-attestation")
    assert (combined.outcome, combined.verdict, combined.reason) == (outcome, Verdict.VIOLATION, Reason.ATTACK_DETECTED)


def test_a_guard_that_demands_as_much_as_the_evidence_policy_keeps_its_own_reason() -> None:
    report = Report(guard="a", outcome=Outcome.BLOCK, reason=Reason.POLICY_DENIED, missing=("/p",))
    assert combine([report], ["a"], "fail-closed").reason is Reason.POLICY_DENIED


def test_the_first_of_equal_demands_gives_the_reason() -> None:
    first = Report(guard="a", outcome=Outcome.BLOCK, reason=Reason.RATE_LIMITED, retry_after=7)
    second = Report(guard="b", outcome=Outcome.BLOCK, reason=Reason.POLICY_DENIED, retry_after=3)
    combined = combine([second, first], ["a", "b"], "fail-closed")
    assert (combined.reason, combined.retry_after) == (Reason.RATE_LIMITED, 7)


def test_a_wait_of_zero_seconds_is_a_wait() -> None:
    assert combine([Report(guard="a", retry_after=0)], ["a"], "fail-closed").retry_after == 0
