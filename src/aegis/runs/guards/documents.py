"""Documents that the caller retrieved: untrusted, so what speaks to the model in them is taken out or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from aegis.core.outcome import Outcome, Reason
from aegis.facts import extract
from aegis.guards.base import ResultCase
from aegis.guards.result import ResultContentGuard
from aegis.models.values import texts
from aegis.runs.guard import GuardContext, Message, RunReport, RunView, Stage
from aegis.runs.guards.options import read_options


class _Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    injected: Literal["drop", "block"] = "drop"


class DocumentsGuard:
    """Judges every document as a tool's result is judged."""

    name = "documents"
    stages: frozenset[Stage] = frozenset({"ingress"})

    def __init__(self, injected: Literal["drop", "block"]) -> None:
        self._injected = injected

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> DocumentsGuard:
        """From `{injected: drop | block}`; raises `ValueError`."""
        return cls(read_options(options, _Options).injected)

    def check(self, view: RunView, context: GuardContext) -> RunReport:
        """`sanitize` without the documents that hold instructions, or `block` where that is configured."""
        guard = ResultContentGuard(context.policy.scanner)
        kept: list[Message] = []
        rules: set[str] = set()
        for document in view.documents:
            report = guard.check_result(_case(list(texts(document)), view, context))
            if report.outcome is Outcome.BLOCK:
                rules |= {finding.rule for finding in report.findings}
            else:
                kept.append(document)
        if not rules:
            return RunReport()
        found = tuple(sorted(rules))
        if self._injected == "block":
            return RunReport(
                outcome=Outcome.BLOCK,
                reason=Reason.ATTACK_DETECTED,
                message="a document holds text that looks like instructions",
                rules=found,
            )
        return RunReport(outcome=Outcome.SANITIZE, reason=Reason.ATTACK_DETECTED, rules=found, documents=tuple(kept))


def _case(value: list[str], view: RunView, context: GuardContext) -> ResultCase:
    return ResultCase(
        tool="document",
        server=None,
        result=value,
        texts=extract(value, context.policy.limits),
        principal=view.principal,
        agent=view.agent,
        session=view.run_id,
        entry=None,
        now=context.clock(),
    )
