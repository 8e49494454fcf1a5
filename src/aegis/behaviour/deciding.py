"""What agents did before, in the decision on the next call: what is contained is held or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from aegis.behaviour.budgets import CallBudget, budget_of
from aegis.behaviour.canaries import Canaries, WatchedCanary, touched
from aegis.behaviour.cascading import Cascades
from aegis.behaviour.containment import GUARD
from aegis.behaviour.loops import Loops, held_and_released
from aegis.behaviour.trust import AgentTrusts, ShownTrust
from aegis.behaviour.usual import UsualCalls
from aegis.core.finding import Finding, Report
from aegis.core.names import normalise_name
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.ports import Reader
from aegis.detect.fold import name_skeleton
from aegis.gate.control import Control, session_subject, tool_subject
from aegis.gate.participants import DecisionAttempt, Part, Participant
from aegis.gate.parts import Parts
from aegis.judges.access import is_judge
from aegis.policy.model import Evaluation, observed
from aegis.store.shared import CountBook

_HARMLESS: Final = frozenset({"read"})


class Behaviour(Participant):
    """Weighs what agents do over time; a call pays for what the policy asks about."""

    def __init__(
        self,
        parts: Parts,
        control: Control,
        canaries: Canaries,
        usual: UsualCalls,
        cascades: Cascades,
        loops: CountBook | None = None,
    ):
        self._cascades = cascades
        self._control = control
        self._canaries = canaries
        self._clock = parts.clock
        self._store = parts.store
        self._loops = Loops(parts.store, loops)
        self._usual = usual
        self._trusts = AgentTrusts(parts.store, parts.clock)

    def take(self, asked: DecisionAttempt) -> Iterator[Part]:
        """What a call takes from the budgets of agents and sessions, and the trust in its agent."""
        if asked.policy.behaviour.reads_trust:
            yield ShownTrust(self._trusts, asked.subject.agent)
        if asked.policy.behaviour.budgets and not is_judge(asked.subject.principal):
            yield CallBudget(asked, self._clock)

    def weigh(self, asked: DecisionAttempt, evaluation: Evaluation, parts: Sequence[Part]) -> Iterator[Report]:
        """The reports on one call: of canaries, of what is contained, goes round in circles or is not usual."""
        rules = asked.policy.behaviour
        self._cascades.attend(asked.state)
        watched = self._canaries.watched(asked.state.epoch)
        if watched is not None and _touches(watched, asked, evaluation):
            yield observed(touched()) if asked.policy.settings["mode"] == "observe" else touched()
        if evaluation.combined.outcome is Outcome.BLOCK:
            return
        if asked.state.contained:
            report = self._contained(asked, evaluation, parts)
            if report is not None:
                yield report
        budget = budget_of(asked, evaluation, parts) if rules.budgets else None
        if budget is not None:
            yield from budget.reports(self._store)
        now, looped = asked.now, None
        if rules.loops.mode != "off":
            looped = self._loops.report(asked, rules.loops, now)
            if looped is not None:
                yield looped
        if rules.baseline.mode == "off" or is_judge(asked.subject.principal):
            return
        held = evaluation.combined.outcome is Outcome.REQUIRE_APPROVAL or looped is not None
        released = asked.known is not None and held_and_released(self._store, asked.known, Reason.ANOMALY)
        if not held or released:
            report = self._usual.report(asked, evaluation, rules.baseline, now, released=released)
            if report is not None:
                yield report

    def _contained(self, asked: DecisionAttempt, evaluation: Evaluation, parts: Sequence[Part]) -> Report | None:
        """The report on a call of something that is held, or of a mission that is stopped."""
        state = asked.state
        subject, call = asked.subject, asked.subject.call
        missions = _lineage(parts, evaluation)
        if any(state.refuses("mission", one) for one in missions):
            return _report(Outcome.BLOCK, Reason.REVOKED, Verdict.VIOLATION, "the mission is contained")
        held = (
            state.holds("everything", "")
            or state.holds("agent", name_skeleton(subject.agent))
            or state.holds("session", session_subject(subject.principal.id, subject.session))
            or state.holds("tool", tool_subject(call.server, call.tool))
            or next(filter(None, (state.holds("mission", one) for one in missions)), None)
        )
        if held is None or not may_change(evaluation):
            return None
        message = "what came before has every call that may change something asked about"
        return _report(Outcome.REQUIRE_APPROVAL, Reason.APPROVAL_REQUIRED, Verdict.COMPLIANT, message)

    def stands(self, reader: Reader, decision: Mapping[str, Any], epoch: int) -> bool:
        """Whether neither session, tool nor mission of a released call was contained since."""
        state = self._control.current()
        return not (
            state.refuses_call(
                decision["principal"], decision.get("session", ""), decision.get("server"), decision["tool"]
            )
            or any(state.refuses("mission", one) for one in decision.get("lineage", ()))
        )


def _touches(watched: WatchedCanary, asked: DecisionAttempt, evaluation: Evaluation) -> bool:
    """Whether a call names a canary; one that was refused unread was not looked at."""
    call = asked.subject.call
    if watched.tools and normalise_name(call.tool) in watched.tools:
        return True
    return not evaluation.unread and watched.is_in(asked.subject.canonical)


def may_change(evaluation: Evaluation) -> bool:
    """Whether a call may change something: it does more than read, or nobody knows what it does."""
    if evaluation.effects:
        return not evaluation.effects <= _HARMLESS
    return evaluation.entry is None or evaluation.entry.effects is None


def _lineage(parts: Sequence[Part], evaluation: Evaluation) -> tuple[str, ...]:
    """The missions of a call, from the root."""
    for part in parts:
        lineage = part.members(evaluation).get("lineage")
        if lineage:
            return tuple(lineage)
    return ()


def _report(outcome: Outcome, reason: Reason, verdict: Verdict, message: str) -> Report:
    return Report(
        guard=GUARD,
        outcome=outcome,
        verdict=verdict,
        reason=reason,
        risk=Risk.HIGH,
        findings=(
            Finding(
                guard=GUARD,
                rule="contained",
                category="policy",
                severity=Risk.HIGH,
                outcome=outcome,
                message=message,
            ),
        ),
    )
