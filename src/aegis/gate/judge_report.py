"""From what judges said to a report, to what the receipt says, and to what the agent is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from aegis.core.combine import Combined
from aegis.core.decision import GuardTime
from aegis.core.finding import Finding, Report
from aegis.core.judging import JudgeRules
from aegis.core.messages import MESSAGES
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.gate.record import Subject
from aegis.guards.outflow import mask_spans
from aegis.judges.model import ESCALATED, REJECTED, Reviewed
from aegis.pipeline.model import IncomingResult
from aegis.pipeline.reports import observed
from aegis.pipeline.run import Policy
from aegis.rules import Scanner

GUARD: Final = "judge"
_AWAY: Final = frozenset({"breaker", "provider", "unavailable", "sandbox", "timeout"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Feedback:
    """What the agent is told of a review; empty where the reason's own sentence says enough."""

    message: str = ""

    def time(self, outcome: Outcome, us: int) -> GuardTime:
        return GuardTime(guard=GUARD, outcome=outcome, us=us)


def report_of(rules: JudgeRules, reviewed: Reviewed) -> Report:
    """The report that a review amounts to."""
    cause = reviewed.cause
    if cause == "passed":
        return Report(guard=GUARD)
    if cause in ESCALATED or (cause in _AWAY and rules.on_unavailable == "require_approval"):
        outcome, reason, verdict = Outcome.REQUIRE_APPROVAL, Reason.APPROVAL_REQUIRED, Verdict.COMPLIANT
        if cause in _AWAY:
            verdict = Verdict.INSUFFICIENT_EVIDENCE
    elif cause in REJECTED:
        outcome, reason, verdict = Outcome.BLOCK, Reason.JUDGE_REJECTED, Verdict.VIOLATION
    else:
        outcome, reason, verdict = Outcome.BLOCK, Reason.JUDGE_FAILED, Verdict.INSUFFICIENT_EVIDENCE
    message = f"the review ended with `{cause}`" + (f" at `{reviewed.validator}`" if reviewed.validator else "")
    finding = Finding(
        guard=GUARD, rule=f"judge-{cause}", category="policy", severity=Risk.HIGH, outcome=outcome, message=message
    )
    report = Report(guard=GUARD, outcome=outcome, verdict=verdict, reason=reason, risk=Risk.MEDIUM, findings=(finding,))
    return observed(report) if rules.mode == "observe" else report


def tightened(combined: Combined, report: Report) -> Combined:
    """`combined` with one more report: nothing is lower than before, by construction."""
    stricter = report.outcome > combined.outcome
    outcome = max(combined.outcome, report.outcome)
    return replace(
        combined,
        outcome=outcome,
        verdict=max(combined.verdict, report.verdict),
        reason=report.reason if stricter else combined.reason,
        risk=max(combined.risk, report.risk),
        findings=(*combined.findings, *report.findings),
        patches=() if outcome is Outcome.BLOCK else combined.patches,
        reports=(*combined.reports, report),
    )


def feedback_of(policy: Policy, subject: Subject, rules: JudgeRules, reviewed: Reviewed, now: int) -> Feedback:
    """What the agent reads as its call's result: the judge's reasoning, after it was looked at like any result."""
    if rules.mode == "observe" or reviewed.cause not in REJECTED:
        return Feedback()
    sentence = MESSAGES[Reason.JUDGE_REJECTED]
    if rules.feedback == "code" or not reviewed.reasoning:
        return Feedback(message=sentence)
    seen = policy.evaluate_result(
        IncomingResult(
            tool=GUARD,
            server=GUARD,
            result=reviewed.reasoning,
            principal=subject.principal,
            agent=subject.agent,
            session=subject.session,
            now=now,
        )
    )
    if seen.combined.outcome is Outcome.BLOCK or not isinstance(seen.result, str):
        return Feedback(message=sentence)
    return Feedback(message=f"{sentence}: {seen.result}")


def judge_members(reviewed: Reviewed) -> dict[str, Any]:
    """What the decision's receipt says of its review: the cause, the runs, and the files that were seen."""
    members: dict[str, Any] = {"state": "judged", "cause": reviewed.cause}
    runs = [run.run_id for run in reviewed.runs if run.run_id]
    if runs:
        members["runs"] = runs
    if any(run.cached for run in reviewed.runs):
        members["reused"] = sum(run.cached for run in reviewed.runs)
    if reviewed.workspace:
        members["workspace"] = reviewed.workspace
    return members


@dataclass(frozen=True, slots=True)
class Masker:
    """Masks secrets in a text that goes to a provider."""

    scanner: Scanner

    def __call__(self, text: str) -> str:
        found = self.scanner.scan(text, "content")
        rules = {hit.rule.id: hit.rule for hit in found if hit.rule.category == "secret"}
        spans = [(start, end, rule.id) for rule in rules.values() for start, end in self.scanner.spans(rule, text)]
        return mask_spans(text, spans) if spans else text

    def is_quiet(self, together: str) -> bool:
        """Whether no rule at all finds something in these lines."""
        return self.scanner.is_quiet(together)
