"""Documents that the caller retrieved: untrusted, so what speaks to the model in them is taken out or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from aegis.core.outcome import Outcome, Reason
from aegis.core.pointer import apply_patches
from aegis.facts import extract
from aegis.guards.base import ResultCase
from aegis.guards.result import ResultContentGuard
from aegis.models.values import texts
from aegis.runs.guard import GuardContext, Message, RunReport, RunView, Stage
from aegis.runs.guards.options import read_options
from aegis.runs.texts import with_texts


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
        """`sanitize` without the documents that hold instructions, or `block` where that is configured.

        Secrets in the other documents are masked, as in a tool's result.
        """
        guard = ResultContentGuard(context.policy.scanner)
        kept: list[Message] = []
        rules: set[str] = set()
        dropped = False
        for document in view.documents:
            value = list(texts(document))
            report = guard.check_result(_case(value, view, context))
            if report.outcome is Outcome.ALLOW:
                kept.append(document)
                continue
            rules |= {finding.rule for finding in report.findings}
            if report.outcome is Outcome.SANITIZE:
                kept.append(_changed(document, apply_patches(value, report.patches)))
            else:
                dropped = True
        if not rules:
            return RunReport()
        found = tuple(sorted(rules))
        if dropped and self._injected == "block":
            return RunReport(
                outcome=Outcome.BLOCK,
                reason=Reason.ATTACK_DETECTED,
                message="a document holds text that looks like instructions",
                rules=found,
            )
        reason = Reason.ATTACK_DETECTED if dropped else Reason.SENSITIVE_DATA
        return RunReport(outcome=Outcome.SANITIZE, reason=reason, rules=found, documents=tuple(kept))


def _changed(document: Message, changed: list[str]) -> Message:
    following = iter(changed)
    return with_texts(document, lambda _: next(following))


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
