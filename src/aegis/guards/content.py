"""The content guard: what the strings of a call do, judged by rules over patterns and facts."""

from __future__ import annotations

from typing import Final

from aegis.core.finding import Finding, Report
from aegis.core.outcome import Outcome
from aegis.guards.base import Case
from aegis.guards.options import ContentOptions, DlpPolicy, InjectedPolicy, RuleOverride
from aegis.guards.verdicts import report_of
from aegis.rules.model import Rule
from aegis.rules.scanner import Scanner

__all__ = ["ContentGuard", "ContentOptions", "DlpPolicy", "InjectedPolicy", "RuleOverride"]

_QUIET: Final = Report(guard="content")
_PLAIN: Final = 12  # a key or value of so few letters and digits is a name, and no rule speaks of those
_EVIDENCE: Final = 200  # characters of the matched piece that a finding keeps


class ContentGuard:
    """Reports what the rules find in a call's strings, views and signals; no I/O, linear time."""

    name = "content"

    def __init__(self, scanner: Scanner, options: ContentOptions | None = None):
        self._scanner = scanner
        self._options = options or ContentOptions()

    def check(self, case: Case) -> Report:
        """One report; `block` for an attack and for a call beyond the limits."""
        facts = case.facts
        scanner = self._scanner
        findings: list[Finding] = list(facts.texts.limits)
        for text in facts.texts.strings:
            value = text.value
            if len(value) <= _PLAIN and value.isalnum():
                continue
            for hit in scanner.scan(value, text.role):
                findings.append(self._finding(hit.rule, case, text.path, value[hit.start : hit.end]))
        for signal in facts.signals:
            for rule in scanner.rules_for(signal.fact):
                if signal.role in rule.surfaces:
                    findings.append(self._finding(rule, case, signal.path, signal.evidence))
        if not findings and not facts.unparsed:
            return _QUIET
        return report_of(self.name, findings, missing=facts.unparsed)

    def _finding(self, rule: Rule, case: Case, path: str, evidence: str) -> Finding:
        outcome = rule.outcome if rule.maturity == "stable" else Outcome.ALLOW
        for override in self._options.overrides:
            if override.covers(rule.id, case.server, case.tool, path, case.now):
                outcome = override.outcome
        return Finding(
            guard=self.name,
            rule=rule.id,
            category=rule.category,
            severity=rule.severity,
            outcome=outcome,
            path=path,
            message=rule.message,
            evidence=evidence[:_EVIDENCE],
        )
