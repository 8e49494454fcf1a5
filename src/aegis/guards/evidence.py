"""The evidence guard: what nobody could look at is never called compliant.

It speaks for the values that the caller itself cannot resolve, and, where no content guard reads the
call, for its limits and for what could not be parsed.
"""

from __future__ import annotations

from typing import Final

from aegis.core.finding import Report
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.guards.base import Case

_QUIET: Final = Report(guard="evidence")


class EvidenceGuard:
    """Names missing evidence; `alone` is true where no content guard runs beside it."""

    name = "evidence"

    def __init__(self, *, alone: bool):
        self._alone = alone

    def check(self, case: Case) -> Report:
        """Missing evidence is answered by the evidence policy; a limit that was exceeded blocks by itself."""
        texts = case.facts.texts
        missing = texts.unresolved
        if self._alone:
            if texts.limits:
                return Report(
                    guard=self.name,
                    outcome=Outcome.BLOCK,
                    verdict=Verdict.INSUFFICIENT_EVIDENCE,
                    reason=Reason.POLICY_DENIED,
                    risk=Risk.MEDIUM,
                    findings=texts.limits,
                    missing=missing,
                )
            missing = (*missing, *case.facts.unparsed)
        return Report(guard=self.name, missing=missing) if missing else _QUIET
