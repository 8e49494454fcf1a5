"""The guard of data flow: whether a call in a session is what its user asked for, with values that may be used so."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from aegis.core.finding import Finding, Report
from aegis.core.outcome import Effect, Outcome, Reason, Risk, Verdict
from aegis.policy.dataflow.declare import Sensitivity
from aegis.policy.dataflow.drift import EmbeddingEndpoint, stray_of, tool_text
from aegis.policy.dataflow.judge import Delegation, FlowFinding, judge_flow
from aegis.policy.dataflow.licence import FlowCall
from aegis.policy.dataflow.reading import SessionView
from aegis.policy.guards.base import Case

_QUIET: Final = Report(guard="dataflow")
_READS: Final[frozenset[Effect]] = frozenset({"read"})
_STEADY: Final = Report(guard="drift")
# No embedding model told anything of the tool: it was not asked yet, or did not answer.
_COUNTED: Final = Report(
    guard="drift",
    findings=(
        Finding(
            guard="drift",
            rule="drift-unmeasured",
            category="dataflow",
            severity=Risk.LOW,
            outcome=Outcome.ALLOW,
            message="how far the call is from what the user asked for was counted, and not measured",
        ),
    ),
)
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
        found = judge_flow(flow_call(case), view, self._delegation)
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


class DriftGuard:
    """Notes calls that are far from the user's words given the run so far, and holds those that are further."""

    name = "drift"

    def __init__(self, *, alert: int, hold: int, defers: bool = False, measures: bool = False):
        self.alert = alert
        self.hold = hold
        self._defers = defers
        self._measures = measures

    def check(self, case: Case) -> Report:
        """Nothing while no words are known; a deferred call waits for what the user says next."""
        view = case.context
        stray = None if view is None else stray_of(flow_call(case), view)
        if view is None or stray is None:
            return _STEADY
        counted = self._measures and stray.acts and tool_text(case.tool) not in view.measured
        if stray.drift < min(self.alert, self.hold):
            return _COUNTED if counted else _STEADY
        holds = stray.drift >= self.hold
        outcome = Outcome.REQUIRE_APPROVAL if holds else Outcome.ALLOW
        finding = Finding(
            guard=self.name,
            rule="drift-hold" if holds else "drift-alert",
            category="dataflow",
            severity=Risk.HIGH if holds else Risk.MEDIUM,
            outcome=outcome,
            message=f"the call is far from what the user asked for ({stray.drift} of 100)",
        )
        findings = (finding, *_COUNTED.findings) if counted else (finding,)
        if not holds:
            return Report(guard=self.name, findings=findings)
        return Report(
            guard=self.name,
            outcome=outcome,
            verdict=Verdict.INSUFFICIENT_EVIDENCE if self._defers else Verdict.VIOLATION,
            reason=Reason.DEFERRED if self._defers else Reason.UNLICENSED,
            risk=Risk.HIGH,
            findings=findings,
            awaits=("turn",) if self._defers else (),
        )


def flow_call(case: Case) -> FlowCall:
    """A call as the steps of data flow see it; no host hands off with a tool that is declared to do more than read."""
    declared = None if case.entry is None else case.entry.effects
    return FlowCall(
        tool=case.tool,
        arguments=case.arguments,
        flow=case.flow,
        leaves="external_send" in case.facts.shown,
        hands_off=case.context is not None and case.context.hands_off and (declared or _READS) <= _READS,
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


class DataflowRules(Struct, frozen=True, kw_only=True):
    """The guard and when it is asked: `known` asks where the user's words are known, and is silent where not.

    `reads` are the fields of a session that policies read; `drift` is the guard that looks at the run so far, where it
    is asked, `notes_drift` says that what it demands is only recorded, and `embeddings` measure it as well.
    `idle` are the seconds after which a session that nobody uses ends, 0 where none does.
    """

    guard: DataflowGuard | None = None
    drift: DriftGuard | None = None
    notes_drift: bool = True
    embeddings: EmbeddingEndpoint | None = None
    mode: Literal["enforce", "known", "observe", "off"] = "off"
    unclassified: Sensitivity = "internal"
    idle: int = 0
    reads: frozenset[str] = frozenset()

    @property
    def guards(self) -> tuple[tuple[DataflowGuard | DriftGuard, bool], ...]:
        """The guards, and whether what each says is only recorded."""
        first = () if self.guard is None else ((self.guard, self.mode == "observe"),)
        return first if self.drift is None else (*first, (self.drift, self.notes_drift))

    @property
    def follows(self) -> bool:
        """Whether anybody asks how far calls are from the user's words."""
        return self.drift is not None or "drift" in self.reads

    def alarms(self, before: int, after: int) -> bool:
        """Whether a session whose drift grows comes to a threshold."""
        return self.drift is not None and any(before < mark <= after for mark in (self.drift.alert, self.drift.hold))

    @property
    def remembers(self) -> bool:
        """Whether anybody asks what sessions read and did."""
        return self.mode != "off" or self.drift is not None or bool(self.reads)

    def asks(self, view: SessionView | None) -> bool:
        """Whether the guards are asked about a call of this session."""
        if view is None:
            return False
        known = view.words is not None
        return (self.guard is not None and (known or self.mode != "known")) or (self.drift is not None and known)
