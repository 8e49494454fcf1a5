"""The evidence guard: what nobody could look at is never called compliant.

It speaks for the values that the caller itself cannot resolve, and, where no content guard reads the
call, for its limits and for what could not be parsed. It points out a parent that the log does not know.
"""

from __future__ import annotations

from typing import Final

from aegis.core.finding import Finding, Report
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.policy.guards.base import Case

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
        """Missing evidence is answered by the evidence policy; a limit that was exceeded blocks by itself."""
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
