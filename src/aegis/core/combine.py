"""The one function that decides: the most restrictive report wins, and silence refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, structs

from aegis.core.finding import Finding, Patch, Report
from aegis.core.outcome import EvidencePolicy, Outcome, Reason, Risk, Verdict


class Combined(Struct, frozen=True, kw_only=True):
    """What all reports together demand; `reports` keeps them in the configured order."""

    outcome: Outcome
    verdict: Verdict
    reason: Reason
    risk: Risk
    findings: tuple[Finding, ...]
    patches: tuple[Patch, ...]
    missing: tuple[str, ...]
    reports: tuple[Report, ...]
    retry_after: int | None = None
    awaits: tuple[str, ...] = ()


MAX_NAMED: Final = 50  # places of missing evidence that one guard names: bounds what a call can make of findings
# Reasons that are named before all others where several reports demand the same outcome.
_GRAVEST: Final = (
    Reason.ATTACK_DETECTED, Reason.UNTRUSTED_VALUE, Reason.UNLICENSED, Reason.SCOPE_VIOLATION, Reason.SENSITIVE_DATA,
    Reason.IRREVERSIBLE, Reason.APPROVAL_REQUIRED, Reason.DEFERRED,
)  # fmt: skip
MAX_NAMED_CHARS: Final = 512  # of one place: a key of the arguments can be as long as they are
MISSING_RULE: Final = "missing-evidence"
_AWAITED: Final = ("result:", "session:", "status:")  # names of missing evidence that say already what is waited for
_EVIDENCE_OUTCOME: dict[EvidencePolicy, Outcome] = {
    "fail-closed": Outcome.BLOCK,
    "require-approval": Outcome.REQUIRE_APPROVAL,
    "defer": Outcome.REQUIRE_APPROVAL,
    "fail-open-with-attestation": Outcome.ALLOW,
}


def combine(reports: Sequence[Report], expected: Sequence[str], evidence: EvidencePolicy) -> Combined:
    """Combine the reports of the guards that were expected into what happens.

    Guarantees: the outcome is at least every report's outcome; a guard that was expected and did not
    report, that reported twice or that was not expected refuses; no expected guard at all, or the
    same one twice, refuses; the evidence policy answers for missing evidence alone and never lowers
    anything else; patches keep the order of `expected`. The result does not depend on the order of
    `reports`. A guard that missed evidence is reported with what was answered for it and what it missed;
    combining the result's own reports again changes nothing.
    """
    # (1) One report for each expected guard, and no other.
    by_guard = {report.guard: report for report in reports}
    names = set(expected)
    if not names or len(names) != len(expected) or len(by_guard) != len(reports) or by_guard.keys() != names:
        return _refused(reports, expected)
    in_order = tuple(by_guard[name] for name in expected)

    outcome, verdict, reason, risk = Outcome.ALLOW, Verdict.COMPLIANT, Reason.NONE, Risk.LOW
    findings: list[Finding] = []
    patches: list[Patch] = []
    missing: list[str] = []
    awaits: list[str] = []
    retry_after: int | None = None
    # (2) Missing evidence is answered by the policy, beside what the guard itself demands.
    if any(report.missing for report in in_order):
        in_order = tuple(_answered(report, evidence) if report.missing else report for report in in_order)
    for report in in_order:
        missing.extend(report.missing)
        if report.awaits:
            awaits.extend(report.awaits)
        # (3) The maximum on both axes; of those that demand it, the gravest reason is named, else that of the first.
        if report.outcome > outcome or (outcome and report.outcome == outcome and _is_graver(report.reason, reason)):
            outcome, reason = report.outcome, report.reason
        verdict = max(verdict, report.verdict)
        risk = max(risk, report.risk)
        if report.findings:
            findings.extend(report.findings)
        if report.patches:
            patches.extend(report.patches)
        if report.retry_after is not None:
            retry_after = max(retry_after or 0, report.retry_after)
    return Combined(
        outcome=outcome,
        verdict=verdict,
        reason=reason,
        risk=risk,
        findings=tuple(findings),
        patches=tuple(patches),
        missing=tuple(missing),
        reports=in_order,
        retry_after=retry_after,
        awaits=tuple(dict.fromkeys(awaits))[:MAX_NAMED],
    )


def tightened(combined: Combined, report: Report) -> Combined:
    """`combined` with one more report: nothing is lower than before, by construction."""
    stricter = report.outcome > combined.outcome
    outcome = max(combined.outcome, report.outcome)
    return structs.replace(
        combined,
        outcome=outcome,
        verdict=max(combined.verdict, report.verdict),
        reason=report.reason if stricter else combined.reason,
        risk=max(combined.risk, report.risk),
        findings=(*combined.findings, *report.findings),
        patches=() if outcome is Outcome.BLOCK else combined.patches,
        reports=(*combined.reports, report),
        awaits=(*combined.awaits, *report.awaits),
    )


def _is_graver(reason: Reason, than: Reason) -> bool:
    return reason in _GRAVEST and (than not in _GRAVEST or _GRAVEST.index(reason) < _GRAVEST.index(than))


def _answered(report: Report, evidence: EvidencePolicy) -> Report:
    """A report with what the evidence policy answers to what it misses, and a finding for each place of that."""
    answer, defers = _EVIDENCE_OUTCOME[evidence], evidence == "defer"
    lacking = Reason.DEFERRED if defers else Reason.INSUFFICIENT_EVIDENCE
    named = {(finding.path, finding.message): finding for finding in report.findings if finding.rule == MISSING_RULE}
    added: list[Finding] = []
    for name in dict.fromkeys(report.missing):
        finding = lack(report.guard, name, answer)
        if (finding.path, finding.message) not in named and len(named) + len(added) < MAX_NAMED:
            added.append(finding)
    return structs.replace(
        report,
        outcome=max(report.outcome, answer),
        reason=report.reason if answer <= report.outcome else lacking,
        verdict=max(report.verdict, Verdict.INSUFFICIENT_EVIDENCE),
        findings=(*report.findings, *added),
        awaits=tuple(dict.fromkeys((*report.awaits, *map(awaited, report.missing)))) if defers else report.awaits,
    )


def awaited(name: str) -> str:
    """What a call waits for that misses `name`: a word of an approval's `waiting_for`."""
    if not name or name.startswith("/"):
        return f"evidence:{name[:MAX_NAMED_CHARS]}"
    return name if name.startswith(_AWAITED) else "turn" if name == "task" else f"status:{name}"


def lack(guard: str, name: str, answer: Outcome) -> Finding:
    """The finding that `guard` missed `name`: a JSON pointer into the arguments, or a word of ours."""
    is_argument = not name or name.startswith("/")
    return Finding(
        guard=guard,
        rule=MISSING_RULE,
        category="policy",
        severity=Risk.MEDIUM,
        outcome=answer,
        path=name if is_argument else "",
        message="the argument could not be evaluated as it stands" if is_argument else f"`{name}` is missing",
    )


def silent(guard: str) -> Report:
    """The report that stands for a guard that gave none: it refuses."""
    return Report(
        guard=guard,
        outcome=Outcome.BLOCK,
        verdict=Verdict.INSUFFICIENT_EVIDENCE,
        reason=Reason.UNAVAILABLE,
        risk=Risk.HIGH,
    )


def _refused(reports: Sequence[Report], expected: Sequence[str]) -> Combined:
    """The refusal of reports that are not one for each expected guard.

    A guard that reported twice counts as silent: neither report is better than the other. What was
    handed in raises verdict and risk all the same, whoever handed it in.
    """
    count = Counter(report.guard for report in reports)
    once = {report.guard: report for report in reports if count[report.guard] == 1}
    in_order = tuple(once.get(name) or silent(name) for name in dict.fromkeys(expected))
    return Combined(
        outcome=Outcome.BLOCK,
        verdict=max((Verdict.INSUFFICIENT_EVIDENCE, *(report.verdict for report in reports))),
        reason=Reason.UNAVAILABLE,
        risk=max((Risk.HIGH, *(report.risk for report in reports))),
        findings=tuple(finding for report in in_order for finding in report.findings),
        patches=(),
        missing=tuple(name for report in in_order for name in report.missing),
        reports=in_order,
    )
