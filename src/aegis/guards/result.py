"""The content guard of results: instructions, secrets and attacks inside what a tool gave back."""

from __future__ import annotations

from typing import Final

from aegis.core.finding import Finding, Report
from aegis.core.outcome import Outcome
from aegis.guards.base import ResultCase
from aegis.guards.options import ContentOptions
from aegis.guards.verdicts import report_of
from aegis.rules.scanner import Scanner

_EVIDENCE: Final = 200


class ResultContentGuard:
    """Reports what the rules find in a tool's result; no I/O, linear time."""

    name = "content"

    def __init__(self, scanner: Scanner, options: ContentOptions | None = None):
        self._scanner = scanner
        self._options = options or ContentOptions()

    def check_result(self, case: ResultCase) -> Report:
        """One report; patches point into the result."""
        findings: list[Finding] = list(case.texts.limits)
        for text in case.texts.strings:
            for hit in self._scanner.scan(text.value, "result"):
                rule = hit.rule
                outcome = rule.outcome if rule.maturity == "stable" else Outcome.ALLOW
                for override in self._options.overrides:
                    if override.covers(rule.id, case.server, case.tool, text.path, case.now):
                        outcome = override.outcome
                findings.append(
                    Finding(
                        guard=self.name,
                        rule=rule.id,
                        category=rule.category,
                        severity=rule.severity,
                        outcome=outcome,
                        path=text.path,
                        message=rule.message,
                        evidence=text.value[hit.start : hit.end][:_EVIDENCE],
                    )
                )
        return report_of(self.name, findings) if findings else Report(guard=self.name)
