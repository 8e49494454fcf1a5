"""From findings to a report: the outcome is the most restrictive finding's, with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aegis.core.finding import Finding, Patch, Report
from aegis.core.outcome import Category, Outcome, Reason, Risk, Verdict

_REASONS: Final[dict[Category, Reason]] = {
    "secret": Reason.SENSITIVE_DATA,
    "pii": Reason.SENSITIVE_DATA,
    "data_exfiltration": Reason.EXFILTRATION,
    "resource_limit": Reason.POLICY_DENIED,
}


def report_of(
    guard: str, findings: Sequence[Finding], *, patches: Sequence[Patch] = (), missing: Sequence[str] = ()
) -> Report:
    """The report that `findings` amount to.

    A resource limit is missing evidence that nothing may cover: it blocks by itself with verdict
    `insufficient_evidence`. Every other finding that restricts is a violation.
    """
    outcome, reason, risk, verdict = Outcome.ALLOW, Reason.NONE, Risk.LOW, Verdict.COMPLIANT
    for finding in findings:
        if finding.outcome is Outcome.ALLOW:
            continue
        is_limit = finding.category == "resource_limit"
        verdict = max(verdict, Verdict.INSUFFICIENT_EVIDENCE if is_limit else Verdict.VIOLATION)
        risk = max(risk, finding.severity)
        better = finding.outcome == outcome and reason is Reason.POLICY_DENIED
        if finding.outcome > outcome or better:
            outcome, reason = finding.outcome, _REASONS.get(finding.category, Reason.ATTACK_DETECTED)
    return Report(
        guard=guard,
        outcome=outcome,
        verdict=verdict,
        reason=reason,
        risk=risk,
        findings=tuple(findings),
        patches=tuple(patches) if outcome is not Outcome.BLOCK else (),
        missing=tuple(missing),
    )
