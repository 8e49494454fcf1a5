"""The life of an approval as its call sees it: held, answered by a grant, and resumed when the call is made again.

`answering` takes people's answers, `expiry` what time does; every change goes through `queue`.

What a held call comes to when it is made again, by the state of its approval:

pending     the same 202 while its time runs; after it, expired
approved    evaluated again under the policy in force: a block cancels, and where anything that was agreed to
            has changed (the policy, what would run, the files it names, who agreed) and the policy still
            asks, a new approval is opened; otherwise it is redeemed, once, with a permit
denied, expired, cancelled, redeemed: refused
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import Struct, structs

from aegis.approvals.deferral import chain_of
from aegis.approvals.grants import Grant, find_for, offered
from aegis.approvals.queue import (
    REASON_OF,
    find,
    is_late,
    opened,
    redeemed_by_grant,
    resolved_by_evidence,
    transition,
)
from aegis.approvals.values import (
    Approval,
    State,
    base_of,
    bound_files,
    deferral_members,
    digest_of,
    is_deferred,
    payload_of,
    running,
)  # fmt: skip
from aegis.approvals.view import announced, composer, told
from aegis.context.sessions import find_session
from aegis.core.approval import ApprovalPolicy
from aegis.core.call import MAX_DEPENDS, ToolCall
from aegis.core.canonical import canonical
from aegis.core.combine import awaited
from aegis.core.decision import ApprovalRef, Decision, ReceiptRef
from aegis.core.outcome import Outcome, Reason, message_for
from aegis.core.ports import Reader, Store, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Recorded
from aegis.core.times import MICROS
from aegis.detect.fold import name_skeleton
from aegis.errors import StoreCorrupt
from aegis.gate.events import Event, new_id, notify
from aegis.gate.participants import DecisionAttempt, DecisionRecord, Doing, Evaluator, Part, Participant, Write, joined
from aegis.gate.parts import Parts
from aegis.gate.permits import mint
from aegis.gate.record import Subject
from aegis.keys.api import Holders
from aegis.log.writer import Apply
from aegis.missions.deciding import Attended, mission_of
from aegis.policy.model import DEFAULT_TIMEOUT, Evaluation
from aegis.policy.policy import Policy

Resumed = Doing[Decision | None]


class Approvals(Participant):
    """Holds calls for people, and answers a held call that is made again."""

    def __init__(self, parts: Parts):
        self._parts = parts
        self._standing = Standing(parts.store)

    def hold(self, asked: DecisionAttempt, evaluation: Evaluation, parts: Sequence[Part], decision_id: str) -> Part:
        policy = asked.policy
        approval = ask(
            self._parts,
            asked.subject,
            evaluation,
            policy,
            mission_of(parts),
            approval_id=new_id(),
            decision_id=decision_id,
            chain=chain_of(parts),
        )
        granted: Granted | None = None
        if approval.kind == "approval":
            granted = find_grant(self._parts, self._standing, approval, policy, asked.state.epoch)
        return _Held(self._parts, approval, granted, policy)

    def resume(self, asked: DecisionAttempt, judge: Evaluator) -> Doing[Decision | None]:
        return Resuming(parts=self._parts, asked=asked, judge=judge, standing=self._standing).steps()

    def let_run(self, reader: Reader, decision: Mapping[str, Any]) -> bool:
        found = find(reader, decision["approval_id"])
        return found is not None and found.state == "redeemed"

    def waits(self, reader: Reader, approval: ApprovalRef) -> bool:
        found = find(reader, approval.id)
        return found is not None and found.state_at(self._parts.clock()) == "pending"


class _Held(Part):
    """One call that waits for people, or that a grant answers."""

    __slots__ = ("_approval", "_granted", "_parts", "_policy")

    def __init__(self, parts: Parts, approval: Approval, granted: Granted | None, policy: Policy):
        self._parts = parts
        self._approval = approval
        self._granted = granted
        self._policy = policy

    @property
    def approval(self) -> ApprovalRef:
        approval = self._approval
        return ApprovalRef(id=approval.id, expires_at=approval.expires, waiting_for=approval.waiting_for)

    @property
    def releases(self) -> bool:
        return self._granted is not None

    def members(self, evaluation: Evaluation) -> Mapping[str, Any]:
        members: dict[str, Any] = {"approval_id": self._approval.id}
        if self._approval.waiting_for:
            members["deferral"] = deferral_members(self._approval, "pending")
        return members

    def look(self, transaction: Transaction, record: DecisionRecord, *, last: bool) -> Write | None:
        """Open the approval, or redeem it by its grant: whoever holds a call looks last, so it is written at once."""
        drafts = self._apply(record.evaluation)(transaction)
        return lambda _: drafts

    def _apply(self, evaluation: Evaluation) -> Apply:
        approval, policy = self._approval, self._policy
        if self._granted is not None:
            return self._granted.apply
        apply = opened(approval, policy.approval_rules.max_pending)
        notify = () if evaluation.approval is None else evaluation.approval.notify
        if not notify or approval.waiting_for:  # people are asked for their answer, not for evidence
            return apply
        return told(apply, composer(policy, approval, notify, evaluation.arguments, approval.created_at), opens=True)

    def release(self, decision: Decision, recorded: Sequence[Recorded], record: DecisionRecord) -> Decision:
        granted, evaluation = self._granted, record.evaluation
        if granted is None:
            return decision
        arguments = None if evaluation.canonical is None else evaluation.arguments
        return released(
            self._parts,
            decision,
            self._approval,
            arguments,
            recorded[-1],
            granted.permit_id,
            mode=record.settings["mode"],
        )


def ask(
    parts: Parts,
    subject: Subject,
    evaluation: Evaluation,
    policy: Policy,
    attended: Attended | None,
    *,
    approval_id: str,
    decision_id: str,
    chain: int = 1,
) -> Approval:
    """The approval that `evaluation` asks for, pending and not yet stored."""
    asked, now = evaluation.approval, parts.clock()
    turn = (DEFAULT_TIMEOUT if asked is None else asked.timeout_seconds) * MICROS
    turns = 1 if asked is None else asked.turns
    waiting_for: tuple[str, ...] = ()
    if is_deferred(evaluation.combined):
        waiting_for = evaluation.combined.awaits or (awaited(""),)
        turn, turns = policy.approval_rules.defer_seconds * MICROS, 1
    call = subject.call
    base = base_of(parts, subject, policy, evaluation.arguments, attended)
    bound = bound_files(evaluation, policy, base)
    return Approval(
        id=approval_id,
        state="pending",
        tool=call.tool,
        server=call.server,
        agent=subject.agent,
        principal=subject.principal.id,
        session=subject.session,
        call_id=subject.call_id,
        request_digest=subject.request_digest,
        call_digest=digest_of(subject, evaluation),
        policy_digest=policy.digest,
        created_at=now,
        expires_at=now + turn * turns,
        turn_micros=turn,
        decision_id=decision_id,
        quorum=1 if asked is None else asked.quorum,
        held_by=evaluation.held_by,
        barred=_owners(parts, subject, attended) if asked is not None and asked.separate_owner else (),
        reason_held=evaluation.combined.reason.value,
        risk=max(evaluation.combined.risk, evaluation.tier).word,
        effects=tuple(sorted(evaluation.effects)),
        irreversible=evaluation.irreversible,
        identities=bound.digest,
        base=base,
        loose=not bound.complete,
        grants=offered(evaluation, policy, subject.call.tool) if subject.session and not waiting_for else (),
        waiting_for=waiting_for,
        chain=chain,
    )


def _owners(parts: Parts, subject: Subject, attended: Attended | None) -> tuple[str, ...]:
    """For whom the session runs: the owner that its host named, and those who issued its missions."""
    if not subject.session:
        return ()
    with parts.store.reader() as reader:
        opened = find_session(parts, reader, subject.principal, subject.session)
    owners = {opened.owner} if opened is not None and opened.owner else set()
    if attended is not None:
        owners |= {one.iss for one in attended.lineage.declarations}
    return tuple(sorted(owners))


class Standing:
    """Whether those who agreed may still agree, looked up again when a call is released, under its control epoch."""

    def __init__(self, store: Store):
        self._store = store
        self._holders = Holders()

    def of_all(self, approval: Approval, policy: Policy, epoch: int) -> bool:
        """Whether everybody who said yes to `approval` still may, under the policy in force."""
        asked = policy.approval_for(approval.server, approval.tool, approval.held_by)
        return self.of(approval.voters, asked, policy, epoch, barred=(approval.principal, *approval.barred))

    def of(
        self, people: Iterable[str], asked: ApprovalPolicy, policy: Policy, epoch: int, *, barred: tuple[str, ...]
    ) -> bool:
        """Whether all `people` are approvers of `asked`, enough of them, and none of them barred."""
        groups = policy.approval_rules.groups

        def may(principal: Principal) -> bool:
            return "approver" in principal.roles and asked.names(principal, groups, asked.turns)

        found = set(people)
        one_each = {name_skeleton(person) for person in found}
        if len(one_each) < asked.quorum or one_each & {name_skeleton(name) for name in barred}:
            return False
        with self._store.reader() as reader:
            return all(self._holders.satisfies(reader, person, epoch, may) for person in found)


class Granted(Struct, frozen=True, kw_only=True):
    """A grant that answers for one call, and the write by which it does."""

    grant: Grant
    permit_id: str
    apply: Apply


def find_grant(parts: Parts, standing: Standing, approval: Approval, policy: Policy, epoch: int) -> Granted | None:
    """The grant that answers for the call of `approval` now; `None` where a person has to."""
    if not approval.session:
        return None
    with parts.store.reader() as reader:
        grant = find_for(
            reader, principal=approval.principal, session=approval.session, call_digest=approval.call_digest
        )
    now = parts.clock()
    if grant is None or not grant.holds(policy_digest=policy.digest, identities=approval.identities, now=now):
        return None
    asked = policy.approval_for(approval.server, approval.tool, approval.held_by)
    barred = (approval.principal, *approval.barred)
    if not asked.session_grant_seconds or not standing.of(grant.approvers, asked, policy, epoch, barred=barred):
        return None
    permit_id = new_id()
    return Granted(
        grant=grant,
        permit_id=permit_id,
        apply=redeemed_by_grant(approval, grant, permit_id=permit_id, new_id=new_id),
    )


@dataclass(frozen=True, kw_only=True)
class Resuming:
    """One held call that is made again, and what its answer depends on; `judge` is the gate."""

    parts: Parts
    asked: DecisionAttempt
    judge: Evaluator
    standing: Standing

    def steps(self) -> Resumed:
        """The answer, or `None` where the call has to be decided anew."""
        held = None if self.asked.known is None else self.asked.known.decision
        if held is None or held.approval is None:
            raise StoreCorrupt("a held call has no approval")
        with self.parts.store.reader() as reader:
            approval = find(reader, held.approval.id)
        if approval is None:
            raise StoreCorrupt("a held call has no approval")
        now = self.parts.clock()
        if approval.state == "pending":
            return (yield from self._pending(approval, held, now))
        if approval.state == "approved":
            return (yield from self._approved(approval, held, now))
        if approval.state == "redeemed":
            _, evaluation = yield from self.judge.judge(self.asked)
            if evaluation.combined.reason is Reason.REVOKED:
                return None
            used = refused(held, "cancelled")
            return replace(used, reason=Reason.CONFLICT, message="this approval was already used")
        return refused(held, approval.state)

    def _pending(self, approval: Approval, held: Decision, now: int) -> Resumed:
        if approval.waiting_for:
            return (yield from self._waiting(approval, held, now))
        _, evaluation = yield from self.judge.judge(self.asked)
        if evaluation.combined.outcome is Outcome.BLOCK:
            yield from self._move(approval, "cancelled")
            return None
        if approval.state_at(now) == "pending":
            return held
        yield from self._move(approval, "expired")
        return refused(held, "expired")

    def _waiting(self, approval: Approval, held: Decision, now: int) -> Resumed:
        """A deferred call that is made again: it is judged with what it said when it was deferred."""
        if approval.state_at(now) != "pending":
            yield from self._move(approval, "expired")
            return refused(held, "expired")
        with self.parts.store.reader() as reader:
            payload = payload_of(self.parts, reader, approval.decision_id)
        if payload is None:
            yield from self._move(approval, "cancelled")
            return None
        call = said_before(self.asked.subject.call, payload)
        asked = structs.replace(self.asked, subject=structs.replace(self.asked.subject, call=call))
        _, evaluation = yield from self.judge.judge(asked)
        if is_deferred(evaluation.combined):
            return held
        yield from end_wait(self.parts, approval, evaluation)
        return None

    def _approved(self, approval: Approval, held: Decision, now: int) -> Resumed:
        if approval.by_evidence:
            return None
        if is_late(approval, now):
            yield from self._move(approval, "expired")
            return refused(held, "expired")
        asked, known = self.asked, self.asked.known
        arguments = None if known is None else known.patched
        if approval.narrowed_by is not None:
            with self.parts.store.reader() as reader:
                arguments = running(self.parts, reader, approval)
            if arguments is None:  # they were erased: nobody can say any more what was agreed to
                yield from self._move(approval, "cancelled")
                return None
            asked = structs.replace(asked, subject=structs.replace(asked.subject, canonical=canonical(arguments)))
        parts, evaluation = yield from self.judge.judge(asked)
        evaluation = yield from self.judge.review_again(asked, evaluation)
        if evaluation.combined.outcome is Outcome.BLOCK or self._changed(approval, asked, parts, evaluation):
            yield from self._move(approval, "cancelled")
            return None
        return (yield from self._redeem(approval, held, arguments, parts, evaluation))

    def _changed(
        self, approval: Approval, asked: DecisionAttempt, parts: Sequence[Part], evaluation: Evaluation
    ) -> bool:
        """Whether something is not as it was when people agreed."""
        policy = asked.policy
        base = base_of(self.parts, asked.subject, policy, evaluation.arguments, mission_of(parts))
        asks = evaluation.combined.outcome is Outcome.REQUIRE_APPROVAL
        return (
            (asks and policy.digest != approval.policy_digest)
            or digest_of(asked.subject, evaluation) != approval.call_digest
            or bound_files(evaluation, policy, base).digest != approval.identities
            or not self.standing.of_all(approval, policy, asked.state.epoch)
        )

    def _redeem(
        self,
        approval: Approval,
        held: Decision,
        arguments: dict[str, Any] | None,
        parts: Sequence[Part],
        evaluation: Evaluation,
    ) -> Doing[Decision]:
        """Redeem the approval; a held call takes nothing from budgets until now."""
        asked, permit_id = self.asked, new_id()
        settings: Mapping[str, str] = asked.policy.settings
        members: dict[str, Any] = {}
        for part in parts:
            settings = part.settings(settings)
            members.update(part.members(evaluation))
        unit = transition(
            approval,
            "redeemed",
            permit_id=permit_id,
            receipt_id=new_id(),
            principal=asked.subject.principal.id,
            epoch=asked.state.epoch,
            members=members,
        )
        record = DecisionRecord(
            asked=asked, evaluation=evaluation, decision_id=held.decision_id, settings=settings, runs=True
        )
        recorded = (yield joined(unit, parts, record))[0]
        notify(
            self.parts.listeners,
            Event(kind="redemption", members={"approval_id": approval.id, "tool": approval.tool}, recorded=recorded),
        )
        held = replace(held, call_digest=approval.call_digest)
        return released(self.parts, held, approval, arguments, recorded, permit_id, mode=settings["mode"])

    def _move(self, approval: Approval, to: State) -> Doing[None]:
        unit = transition(approval, to, receipt_id=new_id(), principal="gate")
        recorded = yield announced(self.asked.policy, approval, unit, self.parts.clock())
        members = {"approval_id": approval.id, "tool": approval.tool, "action": to}
        notify(self.parts.listeners, Event(kind="approval", members=members, recorded=recorded[0]))


def said_before(call: ToolCall, payload: Mapping[str, Any]) -> ToolCall:
    """`call` with the evidence that it said it misses when it was deferred: repeating it without takes nothing back."""
    claimed = payload.get("claimed", {})
    return replace(
        call,
        unresolved=tuple(dict.fromkeys((*call.unresolved, *claimed.get("unresolved", ())))),
        depends_on=tuple(dict.fromkeys((*call.depends_on, *claimed.get("depends_on", ()))))[:MAX_DEPENDS],
        resolves=call.resolves or claimed.get("resolves"),
    )


def end_wait(parts: Parts, approval: Approval, evaluation: Evaluation) -> Doing[None]:
    """Record that a deferred call waits no more: for evidence, or for nothing where it would be blocked by now."""
    if evaluation.combined.outcome is Outcome.BLOCK:
        action: State = "cancelled"
        unit = transition(approval, action, receipt_id=new_id(), principal="gate")
    else:
        action = "approved"
        unit = resolved_by_evidence(approval, now=parts.clock(), receipt_id=new_id())
    recorded = yield unit
    members = {"approval_id": approval.id, "tool": approval.tool, "action": action}
    notify(parts.listeners, Event(kind="approval", members=members, recorded=recorded[0]))


def released(
    parts: Parts,
    held: Decision,
    approval: Approval,
    arguments: dict[str, Any] | None,
    recorded: Recorded,
    permit_id: str,
    *,
    mode: str,
) -> Decision:
    """The held decision as one that may run, now that its approval was redeemed by `recorded`."""
    outcome = Outcome.ALLOW if arguments is None else Outcome.SANITIZE
    permit = mint(
        parts,
        permit_id=permit_id,
        agent=approval.agent,
        session=approval.session,
        server=approval.server,
        tool=approval.tool,
        call_id=approval.call_id,
        call_digest=approval.call_digest,
        decision_id=approval.decision_id,
        receipt=recorded.index,
        mode=mode,
        online=True,
        approval_id=approval.id,
    )
    return replace(
        held,
        outcome=outcome,
        reason=Reason.NONE,
        message=message_for(outcome, Reason.NONE),
        approval=None,
        arguments=arguments,
        permit=permit,
        receipt=ReceiptRef(id=recorded.receipt_id, index=recorded.index, leaf_hash=recorded.leaf_hash.hex()),
    )


def refused(held: Decision, state: State) -> Decision:
    """The block that a denied, expired or cancelled approval turns a held call into."""
    reason = REASON_OF[state]
    said = message_for(Outcome.BLOCK, reason)
    return replace(held, outcome=Outcome.BLOCK, reason=reason, message=said, approval=None, arguments=None)
