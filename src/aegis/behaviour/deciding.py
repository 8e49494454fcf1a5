"""What agents did before, in the decision on the next call, and what follows from what is recorded of it.

What is contained is held or refused. Everything that is recorded is looked at inside of its transaction:

(1) receipts that count for no condition of containment cost nothing
(2) the tally of each subject is read, counted on and written; many gateways on one store count as one
(3) where a condition holds, its subject is contained, the control epoch moves, and both are on record with their cause
(4) every gateway decides its next call under the new epoch, or its record is refused and the call is decided again

Tallies are kept apart by subject. Whoever makes a new one looks at its neighbours and removes those in which nothing
counts any more, so that there are never many more tallies than events inside the longest condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec import to_builtins

from aegis.approvals.queue import find
from aegis.behaviour.budgets import CallBudget, answer, budget_of
from aegis.behaviour.canaries import GUARD as CANARIES
from aegis.behaviour.canaries import Canaries, WatchedCanary, touched
from aegis.behaviour.cascading import Cascades
from aegis.behaviour.containing import CANARY_RULE, EventCounts, counted, may_count, note
from aegis.behaviour.containment import GUARD, TALLIES, caller_of, contain, contained_by, drafts_of, findings_in
from aegis.behaviour.loops import Loops, held_and_released
from aegis.behaviour.trust import AgentTrusts, ShownTrust
from aegis.behaviour.usual import UsualCalls
from aegis.core.behaviour import BudgetRule, ContainedBy, ContainmentRule
from aegis.core.finding import Finding, Report
from aegis.core.json import decode
from aegis.core.names import normalise_name
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft, Recorded
from aegis.detect.fold import name_skeleton
from aegis.gate.control import Control, contained_key, session_subject, tool_subject
from aegis.gate.events import Event, notify
from aegis.gate.participants import DecisionAttempt, Part, Participant
from aegis.gate.parts import Parts
from aegis.judges.access import is_judge
from aegis.policy.model import Evaluation, observed
from aegis.store.shared import CountBook

NEIGHBOURS: Final = 2  # tallies that are looked at for each new one: what is over goes as quickly as new ones come
_OFS: Final[tuple[ContainedBy, ...]] = ("session", "agent", "mission", "tool")
_FOLLOWED: Final = frozenset({"decision", "session", "revocation"})
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


class ContainmentWatch:
    """Counts what is recorded, contains, and follows what came of it; `log.writer.Watch` over one deployment."""

    def __init__(self, parts: Parts, canaries: Canaries, usual: UsualCalls, cascades: Cascades):
        self._cascades = cascades
        self._canaries = canaries
        self._usual = usual
        self._policy = parts.policy
        self._clock = parts.clock
        self._listeners = parts.listeners

    def look(self, transaction: Transaction, drafts: Sequence[Draft], epoch: int) -> Sequence[Draft]:
        """What follows from what one unit records under `epoch`."""
        policy = self._policy.current
        rules, watched = policy.behaviour.containment, self._canaries.watched_in(transaction, epoch)
        found: list[Draft] = []
        for draft in drafts:
            kind = draft.members["kind"]
            if kind == "decision":
                self._usual.save(transaction, draft.members["agent"])
            elif kind == "result":
                _look_at_result(watched, draft)
            elif kind == "approval" and policy.behaviour.budgets and draft.members.get("approvers"):
                self._answered(transaction, draft, policy.behaviour.budgets)
            if kind in _FOLLOWED:
                found += self._cascades.look(transaction, draft, policy.behaviour.cascade)
            if rules and may_count(draft.members, watched=watched is not None):  # (1)
                found += self._counted(transaction, draft, rules, policy.digest)
        return found

    def recorded(self, draft: Draft, recorded: Recorded) -> None:
        """Tell those who listen what was contained, and let what it reached be looked for."""
        if draft.members["kind"] == "revocation":
            self._cascades.wake()
        notify(self._listeners, Event(kind=draft.members["kind"], members=draft.members, recorded=recorded))

    def _answered(self, transaction: Transaction, draft: Draft, budgets: Sequence[BudgetRule]) -> None:
        """Let the budgets know what people said; what evidence or an earlier answer released is no answer to them."""
        said, approval = draft.members.get("action"), find(transaction, draft.members["approval_id"])
        if said in ("approved", "denied") and approval is not None:
            answer(transaction, budgets, approval, self._clock(), is_yes=said == "approved")

    def _counted(
        self, transaction: Transaction, draft: Draft, rules: Sequence[ContainmentRule], policy_digest: str
    ) -> list[Draft]:
        members = draft.members
        findings = () if draft.payload is None else findings_in(draft.payload)
        noted = note(members, findings, caller_of(transaction, members))
        if noted is None:
            return []
        now = max(self._clock(), transaction.head().time)
        drafts: list[Draft] = []
        for of in _OFS:
            subject = noted.subjects.get(of)
            if subject is None or not any(rule.of == of for rule in rules):
                continue
            # (2)
            key = contained_key(of, subject)
            stored = transaction.document(TALLIES, key)
            tally = EventCounts() if stored is None else decode(stored.body, EventCounts)
            rule = counted(tally, rules, noted, of, now)
            if stored is None:
                _sweep(transaction, key, rules, now)
            transaction.put_document(
                Document(
                    collection=TALLIES,
                    key=key,
                    version=1 if stored is None else stored.version + 1,
                    body=orjson.dumps(to_builtins(tally)),
                )
            )
            # (3)
            if rule is not None:
                one = contained_by(rule, subject, now, receipt=noted.receipt, agent=noted.agent, session=noted.session)
                drafts += drafts_of(rule, one, noted.receipt, policy_digest, members)
                if one is not None:
                    contain(transaction, one)
        return drafts


def _look_at_result(watched: WatchedCanary | None, draft: Draft) -> None:
    """Note in the receipt of a result that it holds a canary: its agent read where nobody has to."""
    if watched is not None and draft.payload is not None and watched.is_in(draft.payload):
        noted = {"guard": CANARIES, "outcome": Outcome.ALLOW.word, "rules": [CANARY_RULE]}
        draft.members["guards"] = [*draft.members["guards"], noted]


def _sweep(transaction: Transaction, key: str, rules: Sequence[ContainmentRule], now: int) -> None:
    """Remove what is over among the tallies behind `key`; keys are digests, so that every place comes up."""
    for stored in transaction.documents(TALLIES, after=key, limit=NEIGHBOURS):
        if decode(stored.body, EventCounts).is_over(rules, now):
            transaction.delete_document(TALLIES, stored.key)
