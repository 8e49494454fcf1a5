"""What a held call comes to when it is made again: the same call, one answer for each state.

pending     the same 202 while its time runs; after it, expired
approved    evaluated again under the policy in force: a block cancels, and where anything that was agreed to
            has changed (the policy, what would run, the files it names, who agreed) and the policy still
            asks, a new approval is opened; otherwise it is redeemed, once, with a permit
denied, expired, cancelled, redeemed: refused
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from aegis.approvals.announcing import announced
from aegis.approvals.grants import Grant, find_for
from aegis.approvals.opening import base_of, bound_files, digest_of
from aegis.approvals.queue import REASON_OF, find, is_late, redeemed_by_grant, transition
from aegis.approvals.values import Approval, State
from aegis.core.approval import ApprovalPolicy
from aegis.core.canonical import canonical
from aegis.core.decision import Decision, ReceiptRef
from aegis.core.messages import message_for
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Reader, Store, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft, Recorded
from aegis.detect.fold import name_skeleton
from aegis.errors import StoreCorrupt
from aegis.gate.control import ControlState
from aegis.gate.events import Event, new_id, notify
from aegis.gate.parts import Parts, Slow
from aegis.gate.permits import mint
from aegis.gate.record import Subject
from aegis.gate.repeat import Known, load_payload
from aegis.judges.deciding import Judging
from aegis.keys.api import Holders
from aegis.log.writer import Apply, Unit
from aegis.missions.deciding import Attended
from aegis.policy.model import Evaluation
from aegis.policy.policy import Policy

# What a held call would run: the arguments as submitted, as patched, or as an approver narrowed them.


def running(parts: Parts, reader: Reader, approval: Approval) -> dict[str, Any] | None:
    """The arguments that `approval` is for; `None` where they were erased."""
    payload = payload_of(parts, reader, approval.narrowed_by or approval.decision_id)
    if payload is None:
        return None
    arguments: dict[str, Any] = payload.get("patched", payload["arguments"])
    return arguments


def payload_of(parts: Parts, reader: Reader, receipt_id: str) -> dict[str, Any] | None:
    """The payload beside a receipt; `None` where there is none any more."""
    entry = reader.entry_by_id(receipt_id)
    return None if entry is None else load_payload(parts, reader, entry)[0]


# Whether those who agreed may still agree: looked up again when a call is released, under its control epoch.


class Standing:
    """The standing of approvers, over one store."""

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


Resumed = Generator[Unit | Slow[Any], tuple[Recorded, ...], Decision | None]
Judge = Callable[[Subject], Generator[Unit | Slow[Any], tuple[Recorded, ...], tuple[Attended | None, Evaluation]]]


@dataclass(frozen=True, kw_only=True)
class Resuming:
    """One held call that is made again, and everything that its answer depends on."""

    parts: Parts
    subject: Subject
    state: ControlState
    known: Known
    policy: Policy
    judge: Judge
    standing: Standing
    judging: Judging

    def steps(self) -> Resumed:
        """The answer, or `None` where the call has to be decided anew."""
        held = self.known.decision
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
            _, evaluation = yield from self.judge(self.subject)
            if evaluation.combined.reason is Reason.REVOKED:
                return None
            used = refused(held, "cancelled")
            return replace(used, reason=Reason.CONFLICT, message="this approval was already used")
        return refused(held, approval.state)

    def _pending(self, approval: Approval, held: Decision, now: int) -> Resumed:
        _, evaluation = yield from self.judge(self.subject)
        if evaluation.combined.outcome is Outcome.BLOCK:
            yield from self._move(approval, "cancelled")
            return None
        if approval.state_at(now) == "pending":
            return held
        yield from self._move(approval, "expired")
        return refused(held, "expired")

    def _approved(self, approval: Approval, held: Decision, now: int) -> Resumed:
        if is_late(approval, now):
            yield from self._move(approval, "expired")
            return refused(held, "expired")
        subject, arguments = self.subject, self.known.patched
        if approval.narrowed_by is not None:
            with self.parts.store.reader() as reader:
                arguments = running(self.parts, reader, approval)
            if arguments is None:  # they were erased: nobody can say any more what was agreed to
                yield from self._move(approval, "cancelled")
                return None
            subject = structs.replace(subject, canonical=canonical(arguments))
        attended, evaluation = yield from self.judge(subject)
        if self.policy.judges:
            evaluation = yield from self.judging.again(self.policy, subject, evaluation, self.known)
        if evaluation.combined.outcome is Outcome.BLOCK or self._changed(approval, subject, attended, evaluation):
            yield from self._move(approval, "cancelled")
            return None
        return (yield from self._redeem(approval, held, arguments, attended, evaluation))

    def _changed(self, approval: Approval, subject: Subject, attended: Attended | None, evaluation: Evaluation) -> bool:
        """Whether something is not as it was when people agreed."""
        policy = self.policy
        base = base_of(self.parts, subject, policy, evaluation.arguments, attended)
        asks = evaluation.combined.outcome is Outcome.REQUIRE_APPROVAL
        return (
            (asks and policy.digest != approval.policy_digest)
            or digest_of(subject, evaluation) != approval.call_digest
            or bound_files(evaluation, policy, base).digest != approval.identities
            or not self.standing.of_all(approval, policy, self.state.epoch)
        )

    def _redeem(
        self,
        approval: Approval,
        held: Decision,
        arguments: dict[str, Any] | None,
        attended: Attended | None,
        evaluation: Evaluation,
    ) -> Generator[Unit, tuple[Recorded, ...], Decision]:
        permit_id = new_id()
        unit = transition(
            approval,
            "redeemed",
            permit_id=permit_id,
            receipt_id=new_id(),
            principal=self.subject.principal.id,
            epoch=self.state.epoch,
        )
        if attended is not None:
            unit = under_mission(unit, attended, evaluation)
        recorded = (yield unit)[0]
        notify(
            self.parts.listeners,
            Event(kind="redemption", members={"approval_id": approval.id, "tool": approval.tool}, recorded=recorded),
        )
        settings = self.policy.settings if attended is None else attended.settings(self.policy.settings)
        return released(
            self.parts,
            replace(held, call_digest=approval.call_digest),
            approval,
            arguments,
            recorded,
            permit_id,
            mode=settings["mode"],
        )

    def _move(self, approval: Approval, to: State) -> Generator[Unit, tuple[Recorded, ...], None]:
        unit = transition(approval, to, receipt_id=new_id(), principal="gate")
        recorded = yield announced(self.policy, approval, unit, self.parts.clock())
        members = {"approval_id": approval.id, "tool": approval.tool, "action": to}
        notify(self.parts.listeners, Event(kind="approval", members=members, recorded=recorded[0]))


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
    return replace(
        held,
        outcome=Outcome.BLOCK,
        reason=reason,
        message=message_for(Outcome.BLOCK, reason),
        approval=None,
        arguments=None,
    )


def under_mission(unit: Unit, attended: Attended, evaluation: Evaluation) -> Unit:
    """The redemption with what it takes from budgets: a held call takes nothing until it is released."""
    apply = attended.with_writes(unit.apply, evaluation, runs=True)
    members = attended.members(evaluation)

    def marked(transaction: Transaction) -> Sequence[Draft]:
        return [
            structs.replace(draft, members={**draft.members, **members})
            if draft.members["kind"] == "redemption"
            else draft
            for draft in apply(transaction)
        ]

    return structs.replace(unit, apply=marked)


# Calls that a grant answers: the same tool and arguments, again, in the session for which people agreed.
#
# The log says all of it: the decision that holds the call, the approval by the grant, and its redemption.


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """A grant that answers for one call, and the write by which it does."""

    grant: Grant
    permit_id: str
    apply: Apply

    def released(
        self,
        parts: Parts,
        held: Decision,
        approval: Approval,
        evaluation: Evaluation,
        redemption: Recorded,
        *,
        mode: str,
    ) -> Decision:
        """The decision that may run, redeemed by `redemption`."""
        arguments = None if evaluation.canonical is None else evaluation.arguments
        return released(parts, held, approval, arguments, redemption, self.permit_id, mode=mode)


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
