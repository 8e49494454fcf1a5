"""What a held call comes to when it is made again: the same call, one answer for each state.

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

from msgspec import structs

from aegis.approvals.announcing import announced
from aegis.approvals.binding import base_of, bound_files, digest_of
from aegis.approvals.queue import REASON_OF, find, is_late, transition
from aegis.approvals.values import Approval, State
from aegis.core.approval import ApprovalPolicy
from aegis.core.canonical import canonical
from aegis.core.decision import Decision, ReceiptRef
from aegis.core.messages import message_for
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Reader, Store
from aegis.core.principal import Principal
from aegis.core.receipt import Recorded
from aegis.detect.fold import name_skeleton
from aegis.errors import StoreCorrupt
from aegis.gate.events import Event, new_id, notify
from aegis.gate.participants import DecisionAttempt, DecisionRecord, Doing, Judge, Part, joined
from aegis.gate.parts import Parts
from aegis.gate.permits import mint
from aegis.gate.repeat import load_payload
from aegis.keys.api import Holders
from aegis.missions.deciding import mission_of
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


Resumed = Doing[Decision | None]


@dataclass(frozen=True, kw_only=True)
class Resuming:
    """One held call that is made again, and what its answer depends on; `judge` is the gate."""

    parts: Parts
    asked: DecisionAttempt
    judge: Judge
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
        _, evaluation = yield from self.judge.judge(self.asked)
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
