"""Rules for the answer before the client sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import re2

from aegis.core.outcome import Outcome, Reason
from aegis.runs.guard import GuardContext, RunReport, RunView, Stage
from aegis.runs.guards.options import read_options


class _Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    forbid: tuple[str, ...] = ()
    max_chars: int = 0
    secrets: Literal["mask", "block", "note"] = "mask"


class OutputGuard:
    """Blocks an answer that holds a forbidden pattern or is too long; masks, blocks or notes secrets in it."""

    name = "output"
    stages: frozenset[Stage] = frozenset({"egress"})

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._forbidden = [_compiled(pattern) for pattern in options.forbid]

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> OutputGuard:
        """From `{forbid: [linear-time pattern], max_chars, secrets: mask | block | note}`; raises `ValueError`."""
        return cls(read_options(options, _Options))

    def check(self, view: RunView, context: GuardContext) -> RunReport:
        """One report on `view.output`."""
        text = view.output
        if self._options.max_chars and len(text) > self._options.max_chars:
            return _blocked("output-too-long", "the answer is longer than allowed")
        if any(pattern.search(text) for pattern in self._forbidden):
            return _blocked("output-forbidden", "the answer holds something that it must not")
        scanner = context.policy.scanner
        found = [hit.rule for hit in scanner.scan(text, "result") if hit.rule.category == "secret"]
        rules = tuple(sorted({rule.id for rule in found}))
        if not found or self._options.secrets == "note":
            return RunReport(rules=rules)
        if self._options.secrets == "block":
            return RunReport(
                outcome=Outcome.BLOCK, reason=Reason.SENSITIVE_DATA, message="the answer holds a secret", rules=rules
            )
        spans = sorted({span for rule in found for span in scanner.spans(rule, text)}, reverse=True)
        for start, end in spans:
            text = text[:start] + "[masked]" + text[end:]
        return RunReport(outcome=Outcome.SANITIZE, reason=Reason.SENSITIVE_DATA, rules=rules, output=text)


def _compiled(pattern: str) -> Any:
    try:
        return re2.compile(pattern)
    except re2.error as error:
        raise ValueError(f"`forbid` holds a pattern that does not compile: {error}") from error


def _blocked(rule: str, message: str) -> RunReport:
    return RunReport(outcome=Outcome.BLOCK, reason=Reason.POLICY_DENIED, message=message, rules=(rule,))
