"""The mission guard: whether a call is what its agent was sent to do.

    (1) the mission stands: not revoked, suspended or unknown, and in its time
    (2) the session stands: not voided, blocked or held by what came before
    (3) whoever calls holds the mission's key, where it names one
    (4) every mission of the lineage allows the tool, its effects and everything it touches
    (5) the evidence that the mission requires is there

Nothing of this is read from the call's arguments but what the call touches.

A judge that looks at a call of the session is held to its mission by (1) and (4): its tools are those of its own file,
not the worker's, but what the mission forbids, an effect that it does not name and anything outside of its scope are
as closed to the judge as to the worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from aegis.core.finding import Finding, Report
from aegis.core.mission import KINDS, Kind
from aegis.core.outcome import Effect, Outcome, Reason, Risk, Verdict
from aegis.detect.touch.touch import Resolve, Touched, outside
from aegis.policy.guards.base import Case
from aegis.policy.mission import CompiledMission, MissionView, attested, refusal

_QUIET: Final = Report(guard="mission")
MAX_FINDINGS: Final = 20  # resources named for one call: bounds what a refusal carries


class MissionGuard:
    """`required` refuses calls without a mission; `resolve` follows links on a file system shared with the agent."""

    name = "mission"

    def __init__(self, *, required: bool = False, resolve: Resolve | None = None):
        self._required = required
        self._resolve = resolve

    def check(self, case: Case) -> Report:
        """One report, of the first step that does not hold."""
        view = case.mission
        if view is None:
            if not self._required:
                return _QUIET
            return _no("mission-required", Reason.MISSION_INVALID, "the call belongs to no mission")
        report = self._standing(case, view)
        if not view.for_judge:
            report = report or self._history(view) or self._possession(view)
        if report is not None:
            return report
        report = self._coverage(case, view) or self._evidence(case, view)
        if report is None:
            return _QUIET
        return attested(report) if view.attests else report

    def _standing(self, case: Case, view: MissionView) -> Report | None:
        """(1)"""
        if view.status in ("revoked", "suspended"):
            return _no(f"mission-{view.status}", Reason.REVOKED, f"the mission or one above it is {view.status}")
        if view.status == "unknown":
            return refusal(
                self.name,
                "mission-status",
                Reason.INSUFFICIENT_EVIDENCE,
                "whether the mission still stands is not known",
                verdict=Verdict.INSUFFICIENT_EVIDENCE,
                missing=("mission.status",),
            )
        for compiled in view.lineage:
            if not compiled.begins <= case.now < compiled.ends:
                return _no("mission-time", Reason.MISSION_INVALID, "the mission is over or has not begun")
        if view.acting.sub != case.agent and not view.for_judge:
            return _no("mission-subject", Reason.MISSION_INVALID, "the mission is another agent's")
        return None

    def _history(self, view: MissionView) -> Report | None:
        """(2)"""
        if "void_session" in view.recourse:
            return _no("session-void", Reason.MISSION_INVALID, "an earlier result voided the session")
        if "block_chain" in view.recourse:
            return _no("chain-blocked", Reason.CHAIN_BLOCKED, "an earlier result blocks further calls")
        for compiled in view.lineage:
            limit = compiled.declaration.max_denials
            if limit is not None and view.denials >= limit and not view.attests:
                return _no("probing", Reason.CHAIN_BLOCKED, "the session was refused as often as the mission allows")
        if "escalate" in view.recourse:
            return refusal(
                self.name,
                "escalated",
                Reason.APPROVAL_REQUIRED,
                "an earlier result asks for a person",
                outcome=Outcome.REQUIRE_APPROVAL,
                verdict=Verdict.COMPLIANT,
            )
        return None

    def _possession(self, view: MissionView) -> Report | None:
        """(3)"""
        if view.proof == "invalid":
            return _no("call-proof", Reason.PROOF_INVALID, "the proof of the call does not hold")
        wanted = [name for compiled in view.lineage for name in compiled.declaration.evidence]
        if view.proof != "valid" and "call_proof" in wanted:
            return _lacking(self.name, "call-proof", "the call comes without its proof", "call_proof")
        if not view.session_proof and "session_proof" in wanted:
            return _lacking(self.name, "session-proof", "the session began without its proof", "session_proof")
        return None

    def _coverage(self, case: Case, view: MissionView) -> Report | None:
        """(4)"""
        for compiled in view.lineage:
            report = self._tool(case, compiled, for_judge=view.for_judge)
            if report is not None:
                return report
        findings = self._outside(case, view)
        if findings:
            return Report(
                guard=self.name,
                outcome=Outcome.BLOCK,
                verdict=Verdict.VIOLATION,
                reason=Reason.SCOPE_VIOLATION,
                risk=Risk.HIGH,
                findings=tuple(findings[:MAX_FINDINGS]),
            )
        return None

    def _tool(self, case: Case, compiled: CompiledMission, *, for_judge: bool) -> Report | None:
        server, tool = case.server, case.tool
        covered = compiled.covers(server, tool)
        if covered == "forbidden":
            return _no("tool-forbidden", Reason.MISSION_INVALID, "the mission forbids the tool")
        if covered == "unknown" and not for_judge:
            return _no("tool-not-allowed", Reason.MISSION_INVALID, "the mission does not allow the tool")
        if not case.effects <= compiled.effects:
            return _no("effect-not-allowed", Reason.MISSION_INVALID, "the mission does not allow the effect")
        return None

    def _outside(self, case: Case, view: MissionView) -> list[Finding]:
        touched = case.touched
        if touched is None:
            return []
        found: dict[Finding, None] = {}
        for compiled in view.lineage:
            for pointer, kind, rule in outside(compiled.scope, touched, self._resolve):
                found[
                    Finding(
                        guard=self.name,
                        rule=rule,
                        category="scope",
                        severity=Risk.HIGH,
                        outcome=Outcome.BLOCK,
                        path=pointer,
                        message=f"the call touches something outside of the mission's {kind}",
                    )
                ] = None
        return list(found)

    def _evidence(self, case: Case, view: MissionView) -> Report | None:
        """(5)"""
        missing = [] if case.touched is None else [*case.touched.unreadable, *_unnamed(case, case.touched, view)]
        if view.for_judge:
            return Report(guard=self.name, missing=tuple(missing)) if missing else None
        if not case.effects and (case.entry is None or case.entry.effects is None):
            missing.append("effects")
        if case.orphan:
            missing.append("parent")
        for compiled in view.lineage:
            mission = compiled.declaration
            if "task" in mission.evidence and not view.task:
                missing.append("task")
            if mission.tool_manifest is not None and view.manifest != mission.tool_manifest:
                if view.manifest is not None:
                    return _no("tool-manifest", Reason.TOOL_CHANGED, "the tools are not those that were approved")
                missing.append("tool_manifest")
        return Report(guard=self.name, missing=tuple(dict.fromkeys(missing))) if missing else None


# What a call that has an effect names, where the mission's scope speaks of it: where it goes, who gets it, what runs.
_NAMES: Final[tuple[tuple[Effect, Kind], ...]] = (
    ("network", "hosts"), ("external_send", "recipients"), ("exec", "commands"),
)  # fmt: skip
_LEAVING: Final[Mapping[Effect, Kind]] = {"network": "hosts", "external_send": "recipients"}


def _unnamed(case: Case, touched: Touched, view: MissionView) -> Iterator[str]:
    """The kinds of resources that the call must touch by its effects and does not name, so that no scope was asked.

    A call that both sends and goes out over the network may name where it goes as either. Where a command goes is
    the command's: what its programs may do is decided by the scope of commands.
    """
    if touched.resources.get("commands"):
        return
    scoped = {
        kind
        for compiled in view.lineage
        for kind in KINDS
        if compiled.declaration.scope.of(kind) or compiled.declaration.forbidden_scope.of(kind)
    }
    leaves_for = {kind for effect, kind in _LEAVING.items() if effect in case.effects and kind in scoped}
    for effect, kind in _NAMES:
        if effect not in case.effects or kind not in scoped or touched.resources.get(kind):
            continue
        if kind in leaves_for and any(touched.resources.get(other) for other in leaves_for):
            continue
        yield f"scope.{kind}"


def _no(rule: str, reason: Reason, message: str) -> Report:
    return refusal("mission", rule, reason, message)


def _lacking(guard: str, rule: str, message: str, name: str) -> Report:
    """A proof that is not there refuses by itself: no evidence policy covers it."""
    return refusal(guard, rule, Reason.PROOF_INVALID, message, verdict=Verdict.INSUFFICIENT_EVIDENCE, missing=(name,))


# What a session has read of one class goes on to another only where the mission says so.

_NO_FLOW: Final = Report(guard="flow")


class FlowGuard:
    """Refuses a call whose class may not receive what the session holds."""

    name = "flow"

    def check(self, case: Case) -> Report:
        """`block` where a rule of any mission of the lineage denies the flow, or none allows it."""
        view = case.mission
        if view is None or not view.seen:
            return _NO_FLOW
        for compiled in view.lineage:
            for sink in compiled.classes_of(case.server, case.tool):
                for source in view.seen:
                    if source != sink and source in dict(compiled.classes) and not compiled.rules.get((source, sink)):
                        report = refusal(
                            self.name,
                            f"flow-{source}-{sink}",
                            Reason.EXFILTRATION,
                            "what the session has read may not go there",
                            category="dataflow",
                        )
                        return attested(report) if view.attests else report
        return _NO_FLOW
