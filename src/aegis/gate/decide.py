"""Deciding one call, as steps: every `yield` is a unit to record, answered with where it ended up.

    (1) the caller's right and the shape of the call
    (2) a repeat of a known call answers with that call's current state
    (3) control state: a stopped agent is refused
    (4) the policy evaluates what participants show it, and participants review what it comes to
    (5) each participant that has to joins the record: one unit, under the control epoch and the call's idempotency key
    (6) once it is recorded every part is released, and then the decision

The same steps serve the synchronous and the asynchronous gate: they differ in who waits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from aegis.core.call import ToolCall, check_call, readable
from aegis.core.canonical import call_digest
from aegis.core.combine import tightened
from aegis.core.decision import ApprovalRef, Decision, ReceiptRef
from aegis.core.json import parse
from aegis.core.outcome import Outcome, Reason, Risk, Verdict, message_for
from aegis.core.principal import Principal
from aegis.core.receipt import Recorded, call_id_of
from aegis.errors import InvalidCall, StoreConflict, StoreUnavailable
from aegis.gate.control import Control
from aegis.gate.events import Event, new_id, notify
from aegis.gate.participants import (
    DecisionAttempt,
    DecisionRecord,
    Doing,
    Part,
    Participant,
    RecordRefused,
    asked_of,
    joined,
    refuse,
)
from aegis.gate.parts import Parts
from aegis.gate.permits import Permitted, permit_again
from aegis.gate.record import Made, Subject, make
from aegis.gate.repeat import Known, look_up
from aegis.log.writer import CallKey, Unit
from aegis.policy.model import Evaluation, Incoming
from aegis.policy.policy import Policy

if TYPE_CHECKING:  # of a gateway alone: whoever decides once loads none of it
    from aegis.gate.workers import Workers

ATTEMPTS: Final = 16  # how often a call is decided again because something moved under it
MAX_REMEMBERED: Final = 50_000  # call ids seen by this process: a hint that saves a second evaluation
_NO_PARTS: Final[tuple[Part, ...]] = ()

Steps = Doing[Decision]


class _OfPolicy(NamedTuple):
    """Who has a say under one policy in a call that brings nothing along."""

    policy: Policy | None
    weigh: tuple[Any, ...]
    review: tuple[Any, ...]


def _of(policy: Policy | None, participants: Sequence[Participant]) -> _OfPolicy:
    return _OfPolicy(policy, asked_of(participants, "weigh"), asked_of(participants, "review"))


class Decisions:
    """Decides calls over the parts of one deployment; `participants` take part in their order."""

    def __init__(self, parts: Parts, control: Control, participants: Sequence[Participant]):
        self.workers: Workers | None = None  # of a gateway: who evaluates what is heavy
        self._parts = parts
        self._control = control
        self._participants = participants
        self._introduced: set[str] = set()  # agents whose keys the log knows
        self._of_policy: _OfPolicy | None = None
        self._seen: set[int] = set()  # hashes: whoever is taken for another is looked up in vain
        self._seen_before: set[int] = set()
        self._view = asked_of(participants, "view")
        self._take = asked_of(participants, "take")
        self._reread = asked_of(participants, "reread")
        self._everybody = _of(None, participants)
        self._review_again = asked_of(participants, "review_again")
        self._has_moved = asked_of(participants, "has_moved")
        self._join = asked_of(participants, "join")
        self._hold = asked_of(participants, "hold")
        self._resume = asked_of(participants, "resume")

    def steps(self, principal: Principal, call: ToolCall, *, worker: Subject | None = None) -> Steps:
        """The steps of one decision; `worker` is the call that a judge looks at, where a judge asks.

        Raises `InvalidCall` for misuse and `StoreUnavailable` for a lost log."""
        # (1)
        subject = prepare(principal, call, worker)
        key = (principal.id, subject.session, subject.call_id)
        known: Known | None = None
        refused: RecordRefused | None = None
        is_named = subject.decision_id is None
        look = is_named and (hash(key) in self._seen or hash(key) in self._seen_before)
        state = self._control.latest()
        for _ in range(ATTEMPTS):
            # (2)
            if look:
                state = self._control.current()
                known = look_up(self._parts, key)
            policy = self._parts.policy.current
            now = self._parts.clock()
            asked = DecisionAttempt(subject=subject, policy=policy, state=state, now=now, known=known, refused=refused)
            try:
                if known is not None:
                    answer = yield from self._repeat(asked, known)
                    if answer is not None:
                        return answer
                return (yield from self._decide(asked))
            except StoreConflict as conflict:  # something moved under this call: look again and decide again
                refused = conflict if isinstance(conflict, RecordRefused) else refused
                look = is_named
                state = self._control.current()
            finally:
                if is_named:
                    self._remember(key)
        raise StoreUnavailable("the call could not be decided under a stable configuration")

    def _repeat(self, asked: DecisionAttempt, known: Known) -> Doing[Decision | None]:
        """The state of a known call, or `None` where it has to be decided again."""
        subject, decision = asked.subject, known.decision
        if decision is None or decision.request_digest != subject.request_digest:
            return (yield from self._conflict(asked, known))
        again = structs.replace(asked, charge=False)
        if decision.outcome is Outcome.REQUIRE_APPROVAL:
            for resume in self._resume:
                answer: Decision | None = yield from resume(again, self)
                return answer
        if decision.allowed and (subject.session or subject.principal.tools):
            # A mission can run out, and another key of the same holder be limited, without a change of control state.
            _, evaluation = yield from self.judge(again)
            if evaluation.combined.outcome is Outcome.BLOCK:
                return None
        if known.epoch != asked.state.epoch or decision.policy_digest != asked.policy.digest:
            return None
        if decision.allowed:
            for has_moved in self._has_moved:
                steps = has_moved(asked)
                if steps is not None and (yield from steps):
                    return None
        if known.permit_id is None:  # a permit that is asked for only now belongs to a decision of its own
            return None if subject.call.want_permit and decision.allowed else decision
        return replace(decision, permit=permit_again(self._parts, subject, known))

    def _decide(self, asked: DecisionAttempt) -> Steps:
        started = perf_counter_ns()
        seen, evaluation = yield from self.judge(asked)  # (3), (4)
        parts = list(seen)
        try:
            for review in self._asked(asked, parts).review:
                steps = review(asked, evaluation)
                if steps is not None:
                    evaluation, part = yield from steps
                    parts.insert(0, part)
            record, made = self._draft(asked, evaluation, parts)  # (5)
            key = _key(asked) if asked.subject.decision_id is None else None
            unit = Unit(drafts=(made.draft,), epoch=asked.state.epoch, call=key)
            recorded = yield joined(unit, parts, record) if parts else unit
            if parts:  # receipts of theirs can come before the decision's
                recorded = recorded[[one.receipt_id for one in recorded].index(made.decision_id) :]
            decision = self._release(made, recorded[0], started)  # (6)
            for part in parts:
                decision = part.release(decision, recorded, record)
            return decision
        except BaseException:
            for part in parts:
                part.drop()
            raise

    def _draft(self, asked: DecisionAttempt, evaluation: Evaluation, parts: list[Part]) -> tuple[DecisionRecord, Made]:
        """What will be recorded; `parts` become those of everybody who takes part in the record, in their order."""
        subject, policy = asked.subject, asked.policy
        if subject.agent not in self._introduced:
            self._introduce(subject.agent)
        decision_id = subject.decision_id or new_id()
        if asked.refused is not None and evaluation.combined.outcome is Outcome.REQUIRE_APPROVAL:
            refusal = refuse(asked.refused.guard, asked.refused.reason)
            evaluation = structs.replace(evaluation, combined=refusal.combined)
        outcome = evaluation.combined.outcome
        if subject.session:
            found = [join(asked, evaluation) for join in self._join]
            parts[:0] = [part for part in found if part is not None]
        if outcome is Outcome.REQUIRE_APPROVAL:
            parts += [hold(asked, evaluation, parts, decision_id) for hold in self._hold]
        elif outcome <= Outcome.SANITIZE and (
            subject.call.want_permit or (evaluation.entry is not None and evaluation.entry.permit)
        ):
            parts.append(Permitted(self._parts, new_id()))
        settings: Mapping[str, str] = policy.settings
        approval: ApprovalRef | None = None
        members: dict[str, Any] = {}
        runs = outcome <= Outcome.SANITIZE
        for part in parts:
            settings = part.settings(settings)
            members.update(part.members(evaluation))
            approval = approval or part.approval
            runs = runs or part.releases
        made = make(
            subject,
            evaluation,
            decision_id=decision_id,
            policy_digest=policy.digest,
            settings=settings,
            epoch=asked.state.epoch,
            parent=None if asked.known is None else asked.known.receipt_id,
            approval=approval,
            members=members,
        )
        record = DecisionRecord(
            asked=asked, evaluation=evaluation, decision_id=decision_id, settings=settings, runs=runs
        )
        return record, made

    def judge(self, asked: DecisionAttempt) -> Doing[tuple[tuple[Part, ...], Evaluation]]:
        """What the policy makes of the call, and the parts of those that showed it something."""
        subject, call = asked.subject, asked.subject.call
        state, principal = asked.state, subject.principal
        if state.stopped or state.contained:  # most of the time nothing is
            if state.stops(subject.agent):
                return _NO_PARTS, refuse("revocation", Reason.REVOKED)
            if state.refuses_call(principal.id, subject.session, call.server, call.tool):
                return _NO_PARTS, refuse("containment", Reason.REVOKED)
        if principal.tools and not principal.may_call(call.server, call.tool):
            return _NO_PARTS, refuse("credential", Reason.POLICY_DENIED)
        parts: tuple[Part, ...] = _NO_PARTS
        known = asked.known
        waited = known is not None and known.decision is not None and known.decision.approval is not None
        is_of_chain = waited or bool(call.depends_on) or call.resolves is not None
        if subject.session or call.parent is not None or subject.worker is not None or is_of_chain:
            for view in self._view:
                part = view(asked)
                if isinstance(part, Evaluation):
                    return _NO_PARTS, part
                if part is not None:
                    parts = (*parts, part)
        if asked.policy.behaviour.budgets or asked.policy.behaviour.reads_trust:
            for take in self._take:
                parts = (*parts, *take(asked))
        evaluation = yield from self._evaluate(asked, parts)
        for part in parts:
            if part.is_doubtful(evaluation):  # it was counted just now, and is evaluated again on what the store says
                return (yield from self.judge(structs.replace(asked, charge=False)))
        for weigh in self._asked(asked, parts).weigh:
            for report in weigh(asked, evaluation, parts):
                evaluation = structs.replace(evaluation, combined=tightened(evaluation.combined, report))
        return parts, evaluation

    def _asked(self, asked: DecisionAttempt, parts: Sequence[Part]) -> _OfPolicy:
        """Who weighs and reviews a call: of one that brings nothing along, those to whom the policy gives a say."""
        if parts or asked.subject.session or asked.subject.call.reasoning is not None:
            return self._everybody
        found, policy = self._of_policy, asked.policy
        if found is None or found.policy is not policy:
            found = self._of_policy = _of(policy, [one for one in self._participants if not one.is_idle(policy)])
        return found

    def _introduce(self, agent: str) -> None:
        self._parts.introduce(agent)
        self._introduced.add(agent)

    def review_again(self, asked: DecisionAttempt, evaluation: Evaluation) -> Doing[Evaluation]:
        """`evaluation` of a call that a person released, with what reviewers make of it now."""
        for review_again in self._review_again:
            steps = review_again(asked, evaluation)
            if steps is not None:
                evaluation = yield from steps
        return evaluation

    def _evaluate(self, asked: DecisionAttempt, parts: Sequence[Part]) -> Doing[Evaluation]:
        """The evaluation; a call that runs files which its session wrote is evaluated again with what was written."""
        subject, policy = asked.subject, asked.policy
        call, data = subject.call, subject.canonical
        # A rate is asked before anything is read: a refused flood costs next to nothing.
        incoming = Incoming(
            tool=call.tool,
            server=call.server,
            principal=subject.principal,
            agent=subject.agent,
            session=subject.session,
            call_id=subject.call_id,
            now=asked.now,
            task=call.task,
            unresolved=call.unresolved,
            charge=asked.charge,
            size=len(data),
        )
        for part in parts:
            incoming = structs.replace(incoming, **part.shows())
        if policy.counts and asked.charge:
            incoming = policy.counted(incoming)
            refused = policy.refused(incoming)
            if refused is not None:
                return refused
        if self.workers is None:
            evaluation = policy.evaluate(incoming, data)
        else:
            evaluation = yield from self._evaluated(policy, incoming, data)
        if not subject.session or not evaluation.runs or evaluation.combined.outcome is Outcome.BLOCK:
            return evaluation
        for reread in self._reread:
            shown, noted = reread(asked, evaluation)
            if shown:
                evaluation = yield from self._evaluated(policy, structs.replace(incoming, **shown), data)
            evaluation = structs.replace(evaluation, **noted)
        return evaluation

    def _evaluated(self, policy: Policy, incoming: Incoming, data: bytes) -> Doing[Evaluation]:
        """One evaluation of a gateway, by a worker where it is heavy; a call whose worker is lost is refused."""
        if self.workers is None:
            return policy.evaluate(incoming, data)
        evaluation = yield from self.workers.call(policy, incoming, data)
        if evaluation is None:
            return refuse("evaluation", Reason.UNAVAILABLE)
        outcome = evaluation.combined.outcome
        runs_as_it_is = outcome is Outcome.ALLOW and incoming.charge and not policy.judges
        if evaluation.arguments or evaluation.canonical is not None or runs_as_it_is or outcome is Outcome.BLOCK:
            return evaluation
        return structs.replace(evaluation, arguments=parse(data))

    def _conflict(self, asked: DecisionAttempt, known: Known) -> Steps:
        started = perf_counter_ns()
        subject, policy = asked.subject, asked.policy
        if subject.agent not in self._introduced:
            self._introduce(subject.agent)
        made = make(
            subject,
            refuse("idempotency", Reason.CONFLICT),
            decision_id=new_id(),
            policy_digest=policy.digest,
            settings=policy.settings,
            epoch=asked.state.epoch,
            parent=known.receipt_id,
            approval=None,
            members={},
        )
        recorded = yield Unit(drafts=(made.draft,), epoch=asked.state.epoch)
        return self._release(made, recorded[0], started)

    def _release(self, made: Made, recorded: Recorded, started: int) -> Decision:
        """(6): the decision with the place where the log keeps it; listeners hear of it."""
        receipt = ReceiptRef(id=recorded.receipt_id, index=recorded.index, leaf_hash=recorded.leaf_hash.hex())
        decision = Decision(**made.members, receipt=receipt)
        seconds = (perf_counter_ns() - started) / 1e9
        notify(
            self._parts.listeners,
            Event(
                kind="decision",
                members=made.draft.members,
                recorded=recorded,
                decision=decision,
                seconds=seconds,
            ),
        )
        return decision

    def _remember(self, key: tuple[str, str, str]) -> None:
        self._seen.add(hash(key))
        if len(self._seen) > MAX_REMEMBERED // 2:
            self._seen, self._seen_before = set(), self._seen


def _key(asked: DecisionAttempt) -> CallKey:
    """The key under which a call that its host named is recorded once."""
    subject, known = asked.subject, asked.known
    return CallKey(
        principal=subject.principal.id,
        session=subject.session,
        call_id=subject.call_id,
        known=None if known is None else known.index,
    )


def prepare(principal: Principal, call: ToolCall, worker: Subject | None = None) -> Subject:
    """Step (1): a call that may be decided for this principal; raises `InvalidCall` otherwise."""
    check_call(call)
    if "agent" not in principal.roles:
        raise InvalidCall("this credential may not ask for decisions", code="forbidden", status=403)
    agent = principal.agent or principal.id
    if call.agent is not None and call.agent != agent:
        raise InvalidCall(
            "`agent` is not the agent of this credential",
            code="forbidden",
            status=403,
            hint="leave `agent` out, or use that agent's own key",
        )
    call, arguments = readable(call)
    decision_id = new_id() if call.call_id is None else None
    return Subject(
        call=call,
        call_id=call_id_of(decision_id) if decision_id is not None else str(call.call_id),
        principal=principal,
        agent=agent,
        session=call.session or "",
        canonical=arguments,
        request_digest=call_digest(server=call.server, tool=call.tool, arguments=arguments),
        decision_id=decision_id,
        worker=worker,
    )


def unavailable(call: ToolCall, reason: Reason = Reason.UNAVAILABLE, policy_digest: str = "") -> Decision:
    """The block that stands where nothing could be recorded."""
    digest = call_digest(server=call.server, tool=call.tool, arguments=readable(call)[1])
    return Decision(
        outcome=Outcome.BLOCK,
        verdict=Verdict.INSUFFICIENT_EVIDENCE,
        risk=Risk.HIGH,
        reason=reason,
        message=message_for(Outcome.BLOCK, reason),
        decision_id=new_id(),
        call_id=call.call_id or new_id(),
        request_digest=digest,
        call_digest=digest,
        policy_digest=policy_digest,
        salt=os.urandom(32).hex(),
    )
