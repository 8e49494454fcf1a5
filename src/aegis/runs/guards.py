"""Guards of runs that come with Aegis, by name; others register under the entry point group `aegis.run_guards`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
import re2

from aegis.core.json import apply_patches
from aegis.core.outcome import Outcome, Reason
from aegis.detect import extract
from aegis.policy.guards.base import ResultCase
from aegis.policy.guards.result import ResultContentGuard
from aegis.runs.masking import LABEL, ClassifyGuard, MaskGuard, UnmaskGuard, read_options
from aegis.runs.providers import Make
from aegis.runs.records import spent
from aegis.runs.state import GuardContext, Message, RunReport, RunView, Stage, with_texts
from aegis.wire.client import texts

# Runs that a person has to let go on, by their labels.


class _Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    when: dict[str, tuple[str, ...]]


class AskGuard:
    """Holds a run one of whose labels has one of the given values."""

    name = "ask"
    stages: frozenset[Stage] = frozenset({"ingress", "egress"})

    def __init__(self, when: Mapping[str, tuple[str, ...]]) -> None:
        self._when = when

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> AskGuard:
        """From `{when: {LABEL: [VALUE]}}`; raises `ValueError`."""
        when = read_options(options, _Options).when
        if not when:
            raise ValueError("`when` names no label")
        return cls(when)

    def check(self, view: RunView, _: GuardContext) -> RunReport:
        """`require_approval` where a label has a listed value."""
        held = sorted(label for label, values in self._when.items() if view.labels.get(label) in values)
        if not held:
            return RunReport()
        return RunReport(
            outcome=Outcome.REQUIRE_APPROVAL,
            reason=Reason.APPROVAL_REQUIRED,
            message="a person has to let this run go on",
            rules=tuple(f"ask-{label}" for label in held),
        )


# A ceiling on what one principal's runs cost a day.


class _BudgetOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    per_day: Annotated[int, msgspec.Meta(ge=0)]


class RunBudgetGuard:
    """Refuses to go on once the principal's runs of the day cost `per_day` (millionths of the price list's currency).

    What a model costs is known after it answered, so the answer that crosses the ceiling is the last one.
    """

    name = "budget"
    stages: frozenset[Stage] = frozenset({"ingress", "result"})

    def __init__(self, per_day: int) -> None:
        self._per_day = per_day

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> RunBudgetGuard:
        """From `{per_day}`; raises `ValueError`."""
        return cls(read_options(options, _BudgetOptions).per_day)

    async def check(self, view: RunView, context: GuardContext) -> RunReport:
        """`block` where nothing is left."""
        total = await asyncio.to_thread(spent, context.store, context.clock, view.principal.id)
        if total < self._per_day:
            return RunReport()
        return RunReport(
            outcome=Outcome.BLOCK, reason=Reason.BUDGET_EXHAUSTED, message="the budget of the day is used up"
        )


# Documents that the caller retrieved: untrusted, so what speaks to the model in them is taken out or refused.


class _DocumentsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
        return cls(read_options(options, _DocumentsOptions).injected)

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


# Rules for the answer before the client sees it.


class _OutputOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    forbid: tuple[str, ...] = ()
    max_chars: int = 0
    secrets: Literal["mask", "block", "note"] = "mask"


class OutputGuard:
    """Blocks an answer that holds a forbidden pattern or is too long; masks, blocks or notes secrets in it."""

    name = "output"
    stages: frozenset[Stage] = frozenset({"egress"})

    def __init__(self, options: _OutputOptions) -> None:
        self._options = options
        self._forbidden = [_compiled(pattern) for pattern in options.forbid]

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> OutputGuard:
        """From `{forbid: [linear-time pattern], max_chars, secrets: mask | block | note}`; raises `ValueError`."""
        return cls(read_options(options, _OutputOptions))

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


# Which regions a run's models may be in, from its classification.

REGIONS: Final = "regions"


class _ResidencyOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    regions: dict[str, tuple[str, ...]]


class ResidencyGuard:
    """Reads `labels.classification` and writes `labels.regions`, which routing obeys; `*` is every region."""

    name = "residency"
    stages: frozenset[Stage] = frozenset({"ingress", "result"})

    def __init__(self, regions: Mapping[str, tuple[str, ...]]) -> None:
        self._regions = regions

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> ResidencyGuard:
        """From `{regions: {CLASSIFICATION: [REGION]}}`; raises `ValueError`."""
        return cls(read_options(options, _ResidencyOptions).regions)

    def check(self, view: RunView, _: GuardContext) -> RunReport:
        """`allow` with the regions; a classification for which no rule speaks, or none at all, is blocked."""
        regions = self._regions.get(view.labels.get(LABEL, ""))
        if regions is None:
            return RunReport(
                outcome=Outcome.BLOCK, reason=Reason.POLICY_DENIED, message="no region is allowed for this content"
            )
        return RunReport(labels={REGIONS: " ".join(regions)})


GROUP: Final = "aegis.run_guards"
BUILT_IN: Final[dict[str, Make]] = {
    "ask": AskGuard.configured,
    "budget": RunBudgetGuard.configured,
    "classify": ClassifyGuard.configured,
    "documents": DocumentsGuard.configured,
    "mask": MaskGuard.configured,
    "output": OutputGuard.configured,
    "residency": ResidencyGuard.configured,
    "unmask": UnmaskGuard.configured,
}
