"""The evidence guard: what nobody could look at is never called compliant.

It speaks for the values that the caller itself cannot resolve, for results that a call is made of and that are not
there, and, where no content guard reads the call, for its limits and for what could not be parsed. It points out a
parent that the log does not know.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from aegis.core.combine import awaited
from aegis.core.finding import Finding, Report
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.policy.guards.base import Case, Dependence

_QUIET: Final = Report(guard="evidence")
# Under a mission it is missing evidence as well, which the guard of missions says.
_ORPHAN: Final = Finding(
    guard="evidence",
    rule="unknown-parent",
    category="policy",
    severity=Risk.MEDIUM,
    outcome=Outcome.ALLOW,
    message="`parent` names no call of this principal in this session",
)


class EvidenceGuard:
    """Names missing evidence; `alone` is true where no content guard runs beside it."""

    name = "evidence"

    def __init__(self, *, alone: bool):
        self._alone = alone

    def check(self, case: Case) -> Report:
        """Missing evidence is answered by the evidence policy; a limit that was exceeded blocks by itself.

        What depends on a deferred call is deferred with it, and what depends on one that never ran is blocked.
        """
        if not (case.facts.texts.unresolved or case.orphan or self._alone or case.dependence):
            return _QUIET
        report = self._of_arguments(case)
        if case.dependence is None or report.outcome is Outcome.BLOCK:
            return report
        return _of_others(report, case.dependence)

    def _of_arguments(self, case: Case) -> Report:
        texts = case.facts.texts
        missing = texts.unresolved
        findings = (_ORPHAN,) if case.orphan else ()
        if self._alone:
            if texts.limits:
                return Report(
                    guard=self.name,
                    outcome=Outcome.BLOCK,
                    verdict=Verdict.INSUFFICIENT_EVIDENCE,
                    reason=Reason.POLICY_DENIED,
                    risk=Risk.MEDIUM,
                    findings=(*texts.limits, *findings),
                    missing=missing,
                )
            missing = (*missing, *case.facts.unparsed)
        return Report(guard=self.name, missing=missing, findings=findings) if missing or findings else _QUIET


def _of_others(report: Report, dependence: Dependence) -> Report:
    """`report` with what is to be said of the calls that this one depends on."""
    if dependence.ended:
        ended = Finding(
            guard=report.guard,
            rule="dependence-ended",
            category="policy",
            severity=Risk.MEDIUM,
            outcome=Outcome.BLOCK,
            message="a call that this one depends on never ran",
        )
        return structs.replace(
            report,
            outcome=Outcome.BLOCK,
            verdict=Verdict.VIOLATION,
            reason=Reason.CHAIN_BLOCKED,
            findings=(*report.findings, ended),
        )
    report = structs.replace(report, missing=(*report.missing, *(f"result:{name}" for name in dependence.missing)))
    if not dependence.deferred:
        return report
    deferred = Finding(
        guard=report.guard,
        rule="dependence-deferred",
        category="policy",
        severity=Risk.MEDIUM,
        outcome=Outcome.REQUIRE_APPROVAL,
        message="a call that this one depends on waits for evidence itself",
    )
    return structs.replace(
        report,
        outcome=Outcome.REQUIRE_APPROVAL,
        verdict=Verdict.INSUFFICIENT_EVIDENCE,
        reason=Reason.DEFERRED,
        findings=(*report.findings, deferred),
        awaits=tuple(awaited(f"result:{name}") for name in dependence.deferred),
    )
