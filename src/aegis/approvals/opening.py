"""Holding a call: the approval that it waits for, opened in the transaction that records its decision.

A grant of its session answers at once, for the same tool and arguments: the log then says all of it, the decision that
holds the call, the approval by the grant, and its redemption.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aegis.approvals.announcing import composer, told
from aegis.approvals.binding import base_of, bound_files, digest_of
from aegis.approvals.grants import Grant, find_for
from aegis.approvals.queue import find, opened, redeemed_by_grant
from aegis.approvals.resuming import Resuming, Standing, released
from aegis.approvals.values import Approval
from aegis.context.sessions import find_session
from aegis.core.decision import ApprovalRef, Decision
from aegis.core.ports import Reader, Transaction
from aegis.core.receipt import Recorded
from aegis.core.times import MICROS
from aegis.gate.events import new_id
from aegis.gate.participants import DecisionAttempt, DecisionRecord, Doing, Judge, Part, Participant, Write
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.log.writer import Apply
from aegis.missions.deciding import Attended, mission_of
from aegis.policy.model import DEFAULT_TIMEOUT, Evaluation
from aegis.policy.policy import Policy


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
        )
        granted = find_grant(self._parts, self._standing, approval, policy, asked.state.epoch)
        return _Held(self._parts, approval, granted, policy)

    def resume(self, asked: DecisionAttempt, judge: Judge) -> Doing[Decision | None]:
        return Resuming(parts=self._parts, asked=asked, judge=judge, standing=self._standing).steps()

    def waits(self, reader: Reader, approval: ApprovalRef) -> bool:
        found = find(reader, approval.id)
        return found is not None and found.state_at(self._parts.clock()) == "pending"


class _Held(Part):
    """One call that waits for people, or that a grant answers."""

    __slots__ = ("_approval", "_granted", "_parts", "_policy")
    puts = False

    def __init__(self, parts: Parts, approval: Approval, granted: Granted | None, policy: Policy):
        self._parts = parts
        self._approval = approval
        self._granted = granted
        self._policy = policy

    @property
    def approval(self) -> ApprovalRef:
        return ApprovalRef(id=self._approval.id, expires_at=self._approval.expires)

    @property
    def releases(self) -> bool:
        return self._granted is not None

    def members(self, evaluation: Evaluation) -> Mapping[str, Any]:
        return {"approval_id": self._approval.id}

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
        if not notify:
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
) -> Approval:
    """The approval that `evaluation` asks for, pending and not yet stored."""
    asked, now = evaluation.approval, parts.clock()
    turn = (DEFAULT_TIMEOUT if asked is None else asked.timeout_seconds) * MICROS
    turns = 1 if asked is None else asked.turns
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
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
