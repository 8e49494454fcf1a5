"""What a streamed result is judged by: its conditions, whether it is signed, and what follows missing evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from aegis.core.finding import Finding, Report
from aegis.core.mission import Postcondition, stricter
from aegis.core.names import Selector
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.gate.mission_results import Origin
from aegis.guards.mission_view import MissionView
from aegis.pipeline.run import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamTerms:
    """The conditions of a stream; whether its tool `signs`; whether it `opens` where a condition cannot be judged.

    `agent` is whose call the result is of.
    """

    agent: str
    conditions: tuple[Postcondition, ...] = ()
    signs: bool = False
    opens: bool = False


def terms_of(
    policy: Policy, view: MissionView | None, server: str | None, tool: str, *, agent: str, signs: bool
) -> StreamTerms:
    """The terms of a result of `tool`; a mission that only attests cuts nothing."""
    if view is None:
        return StreamTerms(agent=agent, signs=signs)
    conditions = _conditions(view, server, tool)
    if view.attests:
        conditions = tuple(structs.replace(one, recourse=()) for one in conditions)
    opens = view.attests or stricter(policy.evidence, view.evidence) == "fail-open-with-attestation"
    return StreamTerms(agent=agent, conditions=conditions, signs=signs, opens=opens)


def signed_or_not(report: Report, view: MissionView | None, origin: Origin, server: str | None, tool: str) -> Report:
    """`report` with what the signature over the whole says: a stream that must be signed and is not may not be used.

    Under a mission that only attests, what it wants is noted and what is missing refuses nothing.
    """
    wanted = () if view is None else tuple(one.id for one in _conditions(view, server, tool) if one.check == "signed")
    if view is not None and any("signed_results" in one.declaration.evidence for one in view.lineage):
        wanted = (*wanted, "signed-results")
    attests = view is not None and view.attests
    if origin.provenance == "invalid" or (origin.must_sign and origin.provenance != "valid"):
        report = _unsigned(report, (*wanted, "signed-results"), Outcome.BLOCK)
    elif wanted and origin.provenance != "valid":
        report = _unsigned(report, wanted, Outcome.ALLOW if attests else Outcome.BLOCK)
    if attests and report.missing:
        report = replace(report, missing=(), verdict=max(report.verdict, Verdict.INSUFFICIENT_EVIDENCE))
    return report


def _conditions(view: MissionView, server: str | None, tool: str) -> tuple[Postcondition, ...]:
    return tuple(
        condition
        for compiled in view.lineage
        for condition in compiled.declaration.postconditions
        if any(Selector(one).matches(server, tool) for one in condition.tools)
    )


def _unsigned(report: Report, names: tuple[str, ...], outcome: Outcome) -> Report:
    findings = tuple(
        Finding(
            guard=report.guard,
            rule=f"postcondition-{name}",
            category="policy",
            severity=Risk.HIGH,
            outcome=outcome,
            message="the stream is not signed as it must be",
        )
        for name in dict.fromkeys(names)
    )
    return replace(
        report,
        outcome=max(report.outcome, outcome),
        verdict=Verdict.VIOLATION,
        reason=Reason.POSTCONDITION_FAILED if outcome is Outcome.BLOCK else report.reason,
        risk=Risk.HIGH,
        findings=(*report.findings, *findings),
    )
