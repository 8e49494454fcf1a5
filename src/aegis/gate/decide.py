"""Deciding one call, as steps: every `yield` is a unit to record, answered with where it ended up.

    (1) the caller's right and the shape of the call
    (2) a repeat of a known call answers with that call's current state
    (3) control state: a stopped agent is refused
    (4) the policy evaluates, and judges look at what it leaves open; an outcome of `require_approval` opens an
        approval, unless a grant answers it
    (5) the decision is recorded under the control epoch and the call's idempotency key
    (6) only then it is released

The same steps serve the synchronous and the asynchronous gate: they differ in who waits.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Generator
from concurrent.futures import CancelledError
from dataclasses import replace
from time import perf_counter_ns
from typing import Any, Final, TypeVar

from msgspec import structs

from aegis.approvals.announcing import composer, told
from aegis.approvals.opening import ask
from aegis.approvals.queue import opened
from aegis.approvals.resuming import Granted, Resuming, Standing, find_grant
from aegis.approvals.values import Approval, TooManyPending
from aegis.context.files import recalled, remembering
from aegis.core.call import ToolCall, check_call
from aegis.core.canonical import call_digest
from aegis.core.combine import combine
from aegis.core.decision import ApprovalRef, Decision, ReceiptRef
from aegis.core.finding import Report
from aegis.core.json import parse
from aegis.core.messages import message_for
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.pending import readable
from aegis.core.principal import Principal
from aegis.core.receipt import Recorded
from aegis.errors import InvalidCall, MissionInvalid, StoreConflict, StoreUnavailable
from aegis.gate.control import Control, ControlState
from aegis.gate.events import Event, new_id, notify
from aegis.gate.parts import Parts, Slow
from aegis.gate.permits import permit_again, permit_of, wants_permit
from aegis.gate.record import Made, Subject, make
from aegis.gate.repeat import Known, look_up
from aegis.gate.workers import WorkerLost, Workers
from aegis.judges.access import is_judge, worker_view
from aegis.judges.deciding import Judging
from aegis.log.writer import CallKey, Unit
from aegis.missions.deciding import Attended
from aegis.missions.standing import Missions, stopped_by_mission
from aegis.missions.view import MissionView
from aegis.policy.model import Evaluation, Incoming
from aegis.policy.policy import Policy

ATTEMPTS: Final = 4  # how often a call is decided anew because something moved under it
MAX_REMEMBERED: Final = 50_000  # call ids seen by this process: a hint that saves a second evaluation

T = TypeVar("T")
Doing = Generator[Unit | Slow[Any], tuple[Recorded, ...], T]
Steps = Doing[Decision]


class Decisions:
    """Decides calls over the parts of one deployment."""

    def __init__(self, parts: Parts, control: Control, missions: Missions, judging: Judging):
        self.workers: Workers | None = None  # of a gateway: who evaluates what is heavy
        self._parts = parts
        self._judging = judging
        self._control = control
        self._missions = missions
        self.standing = Standing(parts.store)
        self._seen: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def steps(self, principal: Principal, call: ToolCall, *, worker: Subject | None = None) -> Steps:
        """The steps of one decision; `worker` is the call that a judge looks at, where a judge asks.

        Raises `InvalidCall` for misuse and `StoreUnavailable` for a lost log."""
        # (1)
        subject = prepare(principal, call, worker)
        key = (principal.id, subject.session, subject.call_id)
        known: Known | None = None
        look = not subject.generated and key in self._seen
        room = True
        state = self._control.latest()
        for _ in range(ATTEMPTS):
            # (2)
            if look:
                state = self._control.current()
                known = look_up(self._parts, key)
            try:
                if known is not None:
                    answer = yield from self._repeat(subject, state, known)
                    if answer is not None:
                        return answer
                return (yield from self._decide(subject, state, known, room=room))
            except StoreConflict as conflict:  # something moved under this call: look again and decide anew
                room = room and not isinstance(conflict, TooManyPending)
                look = not subject.generated
                state = self._control.current()
            finally:
                self._remember(key, subject.generated)
        raise StoreUnavailable("the call could not be decided under a stable configuration")

    def _repeat(self, subject: Subject, state: ControlState, known: Known) -> Doing[Decision | None]:
        """The state of a known call, or `None` where it has to be decided anew."""
        if known.decision is None or known.decision.request_digest != subject.request_digest:
            return (yield from self._conflict(subject, state, known))
        if known.decision.outcome is Outcome.REQUIRE_APPROVAL:
            policy = self._parts.policy.current
            resuming = Resuming(
                parts=self._parts,
                subject=subject,
                state=state,
                known=known,
                policy=policy,
                judge=lambda one: self.judge(policy, one, state, known, charge=False),
                standing=self.standing,
                judging=self._judging,
            )
            return (yield from resuming.steps())
        if known.decision.allowed and (subject.session or subject.principal.tools):
            # A mission can run out, and another key of the same holder be limited, without a change of control state.
            _, evaluation = yield from self.judge(self._parts.policy.current, subject, state, known, charge=False)
            if evaluation.combined.outcome is Outcome.BLOCK:
                return None
        if known.epoch != state.epoch or known.decision.policy_digest != self._parts.policy.current.digest:
            return None
        if known.decision.allowed and self._parts.policy.current.judges:
            moved = yield from self._judging.moved(subject, known)
            if moved:
                return None
        if known.permit_id is None:  # a permit that is asked for only now belongs to a decision of its own
            return None if subject.call.want_permit and known.decision.allowed else known.decision
        return replace(known.decision, permit=permit_again(self._parts, subject, known))

    def _decide(self, subject: Subject, state: ControlState, known: Known | None, *, room: bool) -> Steps:
        started = perf_counter_ns()
        policy = self._parts.policy.current
        attended, evaluation = yield from self.judge(policy, subject, state, known, charge=True)  # (3), (4)
        if not policy.judges:
            return (yield from self._record(policy, subject, state, known, attended, evaluation, started, room=room))
        evaluation, ends = yield from self._judging.steps(policy, subject, evaluation)
        with ends:
            steps = self._record(policy, subject, state, known, attended, evaluation, started, room=room)
            return (yield from ends.along(steps))

    def _record(
        self,
        policy: Policy,
        subject: Subject,
        state: ControlState,
        known: Known | None,
        attended: Attended | None,
        evaluation: Evaluation,
        started: int,
        *,
        room: bool,
    ) -> Generator[Unit, tuple[Recorded, ...], Decision]:
        """(5): one unit, and what is released once it is recorded."""
        parts = self._parts
        parts.introduce(subject.agent)
        if evaluation.combined.outcome is Outcome.REQUIRE_APPROVAL and not room:
            evaluation = structs.replace(evaluation, combined=refuse("approvals", Reason.RATE_LIMITED).combined)
        decision_id = new_id()
        approval: Approval | None = None
        granted: Granted | None = None
        if evaluation.combined.outcome is Outcome.REQUIRE_APPROVAL:
            approval = ask(parts, subject, evaluation, policy, attended, approval_id=new_id(), decision_id=decision_id)
            granted = find_grant(parts, self.standing, approval, policy, state.epoch)
        settings = policy.settings if attended is None else attended.settings(policy.settings)
        runs = evaluation.combined.outcome <= Outcome.SANITIZE
        permit_id = new_id() if runs and wants_permit(subject.call, evaluation) else None
        made = make(
            subject,
            evaluation,
            decision_id=decision_id,
            policy_digest=policy.digest,
            settings=settings,
            epoch=state.epoch,
            parent=None if known is None else known.receipt_id,
            approval=None if approval is None else ApprovalRef(id=approval.id, expires_at=approval.expires),
            permit_id=permit_id,
            mission=None if attended is None else attended.members(evaluation),
        )
        apply = None
        if approval is not None:
            limit = policy.approval_rules.max_pending
            apply = opened(approval, limit) if granted is None else granted.apply
            notify_whom = () if granted is not None or evaluation.approval is None else evaluation.approval.notify
            if notify_whom:
                compose = composer(policy, approval, notify_whom, evaluation.arguments, approval.created_at)
                apply = told(apply, compose, opens=True)
        if attended is not None:
            apply = attended.with_writes(apply, evaluation, runs=runs or granted is not None)
        apply = remembering(parts, subject, evaluation, apply, decision_id)
        unit = Unit(
            drafts=(made.draft,),
            apply=apply,
            epoch=state.epoch,
            call=None
            if subject.generated
            else CallKey(
                principal=subject.principal.id,
                session=subject.session,
                call_id=subject.call_id,
                known=None if known is None else known.index,
            ),
        )
        try:
            recorded = yield unit
        except Exception:
            if attended is not None:  # what was worked out for a record that is not there is not remembered
                attended.forget()
            raise
        decision = self._release(made, recorded, started)
        if approval is not None and granted is not None:
            return granted.released(parts, decision, approval, evaluation, recorded[-1], mode=settings["mode"])
        if permit_id is not None:
            permit = permit_of(
                parts, subject, decision, permit_id, mode=settings["mode"], irreversible=evaluation.irreversible
            )
            return replace(decision, permit=permit)
        return decision

    def judge(
        self, policy: Policy, subject: Subject, state: ControlState, known: Known | None, *, charge: bool
    ) -> Doing[tuple[Attended | None, Evaluation]]:
        """What the policy makes of the call, under its mission where its session has one."""
        call, principal = subject.call, subject.principal
        if state.stops(subject.agent):
            return None, refuse("revocation", Reason.REVOKED)
        if not principal.may_call(call.server, call.tool):
            return None, refuse("credential", Reason.POLICY_DENIED)
        if subject.worker is not None:
            return None, (yield from self._for_judge(policy, subject, subject.worker, state))
        taken = known is not None and known.decision is not None and known.decision.allowed
        if known is None and charge:
            recalled = self._missions.recall(subject, state, policy)
            if recalled is not None:
                evaluation = yield from self._evaluate(policy, subject, recalled.view, charge=True)
                if not stopped_by_mission(evaluation):
                    return recalled, evaluation
                charge = False  # it was counted just now, and is judged again on what the store says
        try:
            attended = self._missions.attend(subject, state, policy, repeats=known is not None, taken=taken)
        except MissionInvalid:
            return None, refuse("mission", Reason.MISSION_INVALID)
        view = None if attended is None else attended.view
        return attended, (yield from self._evaluate(policy, subject, view, charge=charge))

    def _for_judge(self, policy: Policy, subject: Subject, worker: Subject, state: ControlState) -> Doing[Evaluation]:
        """A judge may do nothing that the session of its worker may not, and nothing once the worker is stopped."""
        if state.stops(worker.agent):
            return refuse("revocation", Reason.REVOKED)
        try:
            view = worker_view(self._missions, worker, state, policy)
        except MissionInvalid:
            return refuse("mission", Reason.MISSION_INVALID)
        return (yield from self._evaluate(policy, subject, view, charge=True))

    def _evaluate(
        self, policy: Policy, subject: Subject, view: MissionView | None, *, charge: bool
    ) -> Doing[Evaluation]:
        """The evaluation; a call that runs files which its session wrote is judged again with what was written."""
        call, principal, data = subject.call, subject.principal, subject.canonical
        # A rate is asked before anything is read: a refused flood costs next to nothing.
        incoming = policy.counted(
            Incoming(
                tool=call.tool,
                server=call.server,
                arguments={},
                principal=principal,
                agent=subject.agent,
                session=subject.session,
                call_id=subject.call_id,
                now=self._parts.clock(),
                task=call.task,
                unresolved=call.unresolved,
                charge=charge,
                mission=view,
                orphan=call.parent is not None and self._is_orphan(subject),
                size=len(data),
            )
        )
        refused = policy.refused(incoming)
        if refused is not None:
            return refused
        evaluation = yield from self._evaluated(policy, incoming, data)
        if not subject.session or not evaluation.runs or evaluation.combined.outcome is Outcome.BLOCK:
            return evaluation
        files, count = recalled(self._parts, subject, evaluation.runs, policy)
        if files is not None:
            evaluation = yield from self._evaluated(policy, structs.replace(incoming, files=files), data)
        return structs.replace(evaluation, recalled=count)

    def _evaluated(self, policy: Policy, incoming: Incoming, data: bytes) -> Doing[Evaluation]:
        """One evaluation, by a worker where it is heavy; a call whose worker is lost is refused."""
        workers, principal = self.workers, incoming.principal.id
        if workers is None:
            return policy.evaluate(structs.replace(incoming, arguments=parse(data)))
        if not workers.takes(principal, len(data)):
            started = perf_counter_ns()
            evaluation = policy.evaluate(structs.replace(incoming, arguments=parse(data)))
            workers.spent(principal, (perf_counter_ns() - started) / 1e9)
            return evaluation
        slow = Slow(workers.evaluate(policy, incoming, data))
        yield slow
        try:
            evaluation = slow.work.result()
        except (WorkerLost, CancelledError):
            return refuse("evaluation", Reason.UNAVAILABLE)
        outcome = evaluation.combined.outcome
        runs_as_it_is = outcome is Outcome.ALLOW and incoming.charge and not policy.judges
        if evaluation.canonical is None and not runs_as_it_is and outcome is not Outcome.BLOCK:
            return structs.replace(evaluation, arguments=parse(data))
        return evaluation

    def _is_orphan(self, subject: Subject) -> bool:
        """Whether the call names a parent that is no recorded call of the same principal: of its session by call id, or
        any by decision id. A judge's calls name its run."""
        parent, principal = subject.call.parent, subject.principal
        if parent is None or is_judge(principal):
            return False
        if parent == subject.call_id:
            return True
        with self._parts.store.reader() as reader:
            if reader.latest_call(principal.id, subject.session, parent) is not None:
                return False
            entry = reader.entry_by_id(parent)
        return entry is None or entry.kind != "decision" or entry.principal != principal.id

    def _conflict(self, subject: Subject, state: ControlState, known: Known) -> Steps:
        started = perf_counter_ns()
        policy = self._parts.policy.current
        self._parts.introduce(subject.agent)
        made = make(
            subject,
            refuse("idempotency", Reason.CONFLICT),
            decision_id=new_id(),
            policy_digest=policy.digest,
            settings=policy.settings,
            epoch=state.epoch,
            parent=known.receipt_id,
            approval=None,
        )
        recorded = yield Unit(drafts=(made.draft,), epoch=state.epoch)
        return self._release(made, recorded, started)

    def _release(self, made: Made, recorded: tuple[Recorded, ...], started: int) -> Decision:
        """(6): the decision with the place where the log keeps it; listeners hear of it."""
        first = recorded[0]
        receipt = ReceiptRef(id=first.receipt_id, index=first.index, leaf_hash=first.leaf_hash.hex())
        decision = made.released(receipt)
        seconds = (perf_counter_ns() - started) / 1e9
        notify(
            self._parts.listeners,
            Event(
                kind="decision",
                members=made.draft.members,
                recorded=first,
                decision=decision,
                seconds=seconds,
            ),
        )
        return decision

    def _remember(self, key: tuple[str, str, str], generated: bool) -> None:
        if not generated:
            self._seen[key] = None
            if len(self._seen) > MAX_REMEMBERED:
                self._seen.popitem(last=False)


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
    return Subject(
        call=call,
        call_id=call.call_id or new_id(),
        principal=principal,
        agent=agent,
        session=call.session or "",
        canonical=arguments,
        request_digest=call_digest(server=call.server, tool=call.tool, arguments=arguments),
        generated=call.call_id is None,
        worker=worker,
    )


def refuse(guard: str, reason: Reason) -> Evaluation:
    """The evaluation that blocks before any guard of the policy is asked."""
    report = Report(guard=guard, outcome=Outcome.BLOCK, verdict=Verdict.VIOLATION, reason=reason, risk=Risk.HIGH)
    return Evaluation(
        combined=combine((report,), (guard,), "fail-closed"),
        arguments={},
        canonical=None,
        tier=Risk.HIGH,
        irreversible=False,
        effects=frozenset(),
        times=(),
        entry=None,
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
