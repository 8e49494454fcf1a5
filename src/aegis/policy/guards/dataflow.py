"""The guard of data flow: whether a call in a session is what its user asked for, with values that may be used so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from aegis.core.finding import Finding, Report
from aegis.core.outcome import Reason, Risk, Verdict
from aegis.policy.dataflow.declare import Sensitivity
from aegis.policy.dataflow.judge import Delegation, FlowCall, FlowFinding, judge_flow
from aegis.policy.dataflow.reading import SessionView
from aegis.policy.guards.base import Case

_QUIET: Final = Report(guard="dataflow")
_ORDER: Final = (Reason.UNTRUSTED_VALUE, Reason.UNLICENSED, Reason.SENSITIVE_DATA)


class DataflowGuard:
    """Holds calls of a session that the user's words do not ask for, or whose values only a document gave."""

    name = "dataflow"

    def __init__(self, delegation: Delegation):
        self._delegation: Delegation = delegation

    def check(self, case: Case) -> Report:
        """One finding for each argument that came from nowhere the user vouches for, and one for the deed."""
        view = case.context
        if view is None:
            return _QUIET
        call = FlowCall(
            tool=case.tool, arguments=case.arguments, flow=case.flow, leaves="external_send" in case.facts.shown
        )
        found = judge_flow(call, view, self._delegation)
        if not found:
            return _QUIET
        outcome = max(one.outcome for one in found)
        reasons = sorted((one.reason for one in found if one.outcome is outcome), key=_ORDER.index)
        return Report(
            guard=self.name,
            outcome=outcome,
            verdict=Verdict.VIOLATION,
            reason=reasons[0],
            risk=Risk.HIGH,
            findings=tuple(_finding(one, view) for one in found),
        )


def _finding(found: FlowFinding, view: SessionView) -> Finding:
    return Finding(
        guard="dataflow",
        rule=found.rule,
        category="dataflow",
        severity=Risk.HIGH,
        outcome=found.outcome,
        path=found.path,
        message=found.message,
        evidence=found.does or found.kind,
        origins=tuple((view.documents[one.document].receipt, one.path) for one in found.origins),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DataflowRules:
    """The guard and when it is asked: `known` asks where the user's words are known, and is silent where not.

    `reads` are the fields of a session that policies read.
    """

    guard: DataflowGuard | None = None
    mode: Literal["enforce", "known", "observe", "off"] = "off"
    unclassified: Sensitivity = "internal"
    reads: frozenset[str] = frozenset()

    @property
    def guards(self) -> tuple[tuple[DataflowGuard, bool], ...]:
        """The guard, and whether what it says is only recorded."""
        return () if self.guard is None else ((self.guard, self.mode == "observe"),)

    @property
    def remembers(self) -> bool:
        """Whether anybody asks what sessions read and did."""
        return self.mode != "off" or bool(self.reads)

    def asks(self, view: SessionView | None) -> bool:
        """Whether the guard is asked about a call of this session."""
        return view is not None and self.guard is not None and (self.mode != "known" or view.words is not None)
