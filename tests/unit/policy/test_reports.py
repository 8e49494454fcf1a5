from __future__ import annotations

from aegis.core.combine import MISSING_RULE, combine
from aegis.core.finding import Finding, Patch, Report
from aegis.core.outcome import EvidencePolicy, Outcome, Reason, Risk, Verdict
from aegis.policy.model import failed, merged, observed, unsettled

NOTE = Finding(guard="a", rule="r", category="pii", severity=Risk.LOW, outcome=Outcome.ALLOW)


def test_a_failed_guard_names_what_it_raised() -> None:
    (finding,) = failed("a", KeyError("value")).findings
    assert (finding.guard, finding.rule, finding.category) == ("a", "guard-failed", "policy")
    assert finding.message == "the guard failed: `KeyError`"
    assert failed("a").findings[0].message == "the guard failed: `a report that is not its own`"


def test_observing_keeps_what_was_only_noted() -> None:
    assert observed(Report(guard="a", findings=(NOTE,))).findings == (NOTE,)
    assert observed(Report(guard="a", risk=Risk.HIGH)) == Report(guard="a")


def test_observing_says_what_was_missing() -> None:
    report = observed(Report(guard="a", missing=("/x",)))
    assert report.missing == ()
    assert [(finding.rule, finding.path) for finding in report.findings] == [("observed", ""), (MISSING_RULE, "/x")]
    assert {finding.outcome for finding in report.findings} == {Outcome.ALLOW}


def test_of_several_rounds_the_strictest_counts_and_nothing_is_lost_or_repeated() -> None:
    first = Report(
        guard="a",
        outcome=Outcome.SANITIZE,
        reason=Reason.SENSITIVE_DATA,
        verdict=Verdict.VIOLATION,
        risk=Risk.LOW,
        findings=(NOTE,),
        patches=(Patch(path="/x", value=1),),
        missing=("/m",),
    )
    second = Report(guard="a", verdict=Verdict.COMPLIANT, risk=Risk.HIGH, findings=(NOTE,), missing=("/m", "/n"))
    policy: EvidencePolicy = "fail-open-with-attestation"
    rounds = [combine([report], ["a"], policy) for report in (first, second)]
    together = merged(rounds, ["a"], policy)
    assert (together.outcome, together.reason) == (Outcome.SANITIZE, Reason.SENSITIVE_DATA)
    assert (together.verdict, together.risk) == (Verdict.VIOLATION, Risk.HIGH)
    assert together.missing == ("/m", "/n")
    assert [(one.rule, one.path) for one in together.findings] == [
        ("r", ""),
        (MISSING_RULE, "/m"),
        (MISSING_RULE, "/n"),
    ]
    assert together.patches == (Patch(path="/x", value=1),)
    assert merged(rounds[::-1], ["a"], policy).outcome is Outcome.SANITIZE


def test_what_cannot_be_patched_blocks_and_keeps_a_violation() -> None:
    report = Report(
        guard="a", outcome=Outcome.SANITIZE, verdict=Verdict.VIOLATION, patches=(Patch(path="/x", value=1),)
    )
    blocked = unsettled(combine([report], ["a"], "fail-closed"), "patch-invalid", "why")
    assert (blocked.outcome, blocked.reason, blocked.verdict) == (
        Outcome.BLOCK, Reason.POLICY_DENIED, Verdict.VIOLATION,
    )  # fmt: skip
    assert blocked.patches == ()
    assert [(finding.guard, finding.rule, finding.message) for finding in blocked.findings] == [
        ("pipeline", "patch-invalid", "why")
    ]
