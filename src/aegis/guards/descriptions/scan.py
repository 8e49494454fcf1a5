"""Reads descriptions as a model would, and finds what speaks to the model in place of describing the tool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aegis.core.finding import Finding
from aegis.core.outcome import Outcome
from aegis.core.tool_description import ToolDescription
from aegis.facts import extract
from aegis.facts.fold import hidden_text
from aegis.facts.model import Limits
from aegis.facts.views import views_of
from aegis.guards.descriptions.names import confusions
from aegis.rules.model import Rule
from aegis.rules.scanner import Scanner

GUARD: Final = "descriptions"
MOST_FINDINGS: Final = 50  # of one tool; a hostile server must not fill a report
_EVIDENCE: Final = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFinding:
    """One finding in what a tool says; `finding.path` points into its members (`/description`, `/input_schema/...`)."""

    tool: ToolDescription
    finding: Finding


class DescriptionScanner:
    """Judges lists of tools by the rules that apply to descriptions, and by how their names relate; no I/O."""

    def __init__(self, scanner: Scanner, *, limits: Limits | None = None) -> None:
        self._scanner = scanner
        self._limits = limits or Limits()

    def scan(self, tools: Sequence[ToolDescription], *, known: Sequence[ToolDescription] = ()) -> list[ToolFinding]:
        """Findings of `tools` in their order; `known` are tools of other servers that they could imitate."""
        found = [ToolFinding(tool=tool, finding=one) for tool in tools for one in self._texts(tool)]
        return found + [ToolFinding(tool=tool, finding=one) for tool, one in confusions(tools, known)]

    def _texts(self, tool: ToolDescription) -> list[Finding]:
        texts = extract({"name": tool.name, **tool.members()}, self._limits)
        findings = list(texts.limits)
        seen: set[tuple[str, str]] = set()
        for text in texts.strings:
            for rule, evidence in self._hits(text.value):
                if (rule.id, text.path) not in seen:
                    seen.add((rule.id, text.path))
                    findings.append(_finding(rule, text.path, evidence))
        findings.sort(key=lambda finding: -finding.outcome)
        return findings[:MOST_FINDINGS]

    def _hits(self, value: str) -> Iterator[tuple[Rule, str]]:
        for reading in (value, *(reading for reading, kinds in views_of(value) if "shell" not in kinds)):
            for hit in self._scanner.scan(reading, "description"):
                yield hit.rule, reading[hit.start : hit.end]
        hidden = hidden_text(value)
        if hidden:
            for rule in self._scanner.rules_for("text.hidden"):
                yield rule, hidden


def _finding(rule: Rule, path: str, evidence: str) -> Finding:
    return Finding(
        guard=GUARD,
        rule=rule.id,
        category=rule.category,
        severity=rule.severity,
        outcome=rule.outcome if rule.maturity == "stable" else Outcome.ALLOW,
        path=path,
        message=rule.message,
        evidence=evidence[:_EVIDENCE],
    )
