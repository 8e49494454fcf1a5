"""What a policy adds to what its guards say: reports of guards that failed or are only observed, and patches.

A patched call or result is analysed again, until nothing is left to patch: what runs was looked at as it runs. The
rounds count as one, in which nothing that any of them demanded or saw is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from aegis.core.canonical import canonical
from aegis.core.combine import MAX_NAMED, Combined, combine, lack, silent
from aegis.core.finding import Finding, Report
from aegis.core.json import apply_patches, parse
from aegis.core.outcome import EvidencePolicy, Outcome, Reason, Risk, Verdict
from aegis.errors import InvalidCall

PIPELINE: Final = "pipeline"
MAX_ROUNDS: Final = 4  # patches that still change something after so many rounds are fighting each other

Analyse = Callable[[Any], Combined]


class Settled(NamedTuple):
    """What came out: the value that was last looked at, and its canonical bytes where it was patched."""

    combined: Combined
    value: Any
    canonical: bytes | None


def failed(guard: str, error: BaseException | None = None) -> Report:
    """The refusing report of a guard that failed; names the type of the failure and no value."""
    what = type(error).__name__ if error is not None else "a report that is not its own"
    return replace(
        silent(guard), findings=(_note(guard, "guard-failed", Outcome.BLOCK, f"the guard failed: `{what}`"),)
    )


def observed(report: Report) -> Report:
    """What an observed guard saw, demanding nothing; a note says what it would have demanded."""
    if report.outcome is Outcome.ALLOW and not report.findings and not report.missing:
        return Report(guard=report.guard)
    findings = [replace(finding, outcome=Outcome.ALLOW) for finding in report.findings]
    if report.outcome is not Outcome.ALLOW:
        message = f"would have been `{report.outcome.word}` with reason `{report.reason.value}`"
        findings.append(_note(report.guard, "observed", Outcome.ALLOW, message))
    elif report.missing:
        findings.append(_note(report.guard, "observed", Outcome.ALLOW, "evidence was missing"))
    findings.extend(lack(report.guard, name, Outcome.ALLOW) for name in dict.fromkeys(report.missing[:MAX_NAMED]))
    return Report(guard=report.guard, findings=tuple(findings))


def settle(value: Any, first: Combined, analyse: Analyse, expected: Sequence[str], evidence: EvidencePolicy) -> Settled:
    """Carry out the patches of `first`, which analysed `value`, and everything that follows from them.

    Guarantees: an outcome other than `block` is what the guards say about exactly the value that is
    returned, joined with what they said before; the value is a fresh decode of `canonical`.
    """
    rounds = [first]
    patched, data = value, None
    while True:
        latest = rounds[-1]
        # (1) A block needs no patch, and shows the call as it was submitted.
        if latest.outcome is Outcome.BLOCK:
            return Settled(merged(rounds, expected, evidence), value, None)
        # (2) Nothing is left to patch.
        if not latest.patches:
            return Settled(merged(rounds, expected, evidence), patched, data)
        # (3) Patch, through the bytes that will be digested.
        try:
            after = canonical(apply_patches(patched, latest.patches))
            following = parse(after)
        except (LookupError, ValueError, TypeError, RecursionError, InvalidCall):
            together = merged(rounds, expected, evidence)
            return Settled(unsettled(together, "patch-invalid", "a patch does not fit the call"), value, None)
        # (4) Patches that change nothing are carried out; others are looked at again.
        if after == data:
            return Settled(merged(rounds, expected, evidence), patched, data)
        if len(rounds) > MAX_ROUNDS:
            together = merged(rounds, expected, evidence)
            return Settled(unsettled(together, "patch-endless", "the patches do not converge"), value, None)
        patched, data = following, after
        rounds.append(analyse(patched))


def merged(rounds: Sequence[Combined], expected: Sequence[str], evidence: EvidencePolicy) -> Combined:
    """Several rounds of analysis as one: nothing that any round demanded or saw is lost."""
    reports = [_merge([found.reports[position] for found in rounds]) for position in range(len(expected))]
    return combine(reports, expected, evidence)


def unsettled(combined: Combined, rule: str, message: str) -> Combined:
    """`combined`, made to block because its patches cannot be carried out."""
    finding = _note(PIPELINE, rule, Outcome.BLOCK, message)
    return replace(
        combined,
        outcome=Outcome.BLOCK,
        verdict=max(combined.verdict, Verdict.INSUFFICIENT_EVIDENCE),
        reason=Reason.POLICY_DENIED,
        findings=(*combined.findings, finding),
        patches=(),
    )


def _merge(reports: Sequence[Report]) -> Report:
    strictest = max(reports, key=lambda report: report.outcome)
    return replace(
        strictest,
        verdict=max(report.verdict for report in reports),
        risk=max(report.risk for report in reports),
        findings=tuple(dict.fromkeys(finding for report in reports for finding in report.findings)),
        patches=tuple(patch for report in reports for patch in report.patches),
        missing=tuple(dict.fromkeys(name for report in reports for name in report.missing)),
    )


def _note(guard: str, rule: str, outcome: Outcome, message: str) -> Finding:
    return Finding(guard=guard, rule=rule, category="policy", severity=Risk.MEDIUM, outcome=outcome, message=message)
