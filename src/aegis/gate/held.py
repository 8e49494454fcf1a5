"""What a held call comes to when it is made again: the same call, one answer for each state.

pending     the same 202 while its time runs; after it, expired
approved    evaluated again under the policy in force: a block cancels, a changed policy that
            still asks opens a new approval, otherwise it is redeemed, once, with a permit
denied, expired, cancelled, redeemed: refused
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from aegis.approvals.model import Approval, State
from aegis.approvals.permits import mint
from aegis.approvals.queue import REASON_OF, REDEEMABLE_MICROS, find, transition
from aegis.audit.writer import Unit
from aegis.core.decision import Decision, ReceiptRef
from aegis.core.messages import message_for
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Transaction
from aegis.core.receipt import Draft, Recorded
from aegis.errors import StoreCorrupt
from aegis.gate.control import ControlState
from aegis.gate.events import Event, notify
from aegis.gate.ids import new_id
from aegis.gate.missions import Attended
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.repeat import Known
from aegis.pipeline.model import Evaluation

Resumed = Generator[Unit, tuple[Recorded, ...], Decision | None]


def resume(
    parts: Parts,
    subject: Subject,
    state: ControlState,
    known: Known,
    evaluation: Evaluation,
    policy_digest: str,
    attended: Attended | None = None,
) -> Resumed:
    """The answer to a held call that is made again, or `None` where it has to be decided anew."""
    held = known.decision
    if held is None or held.approval is None:
        raise StoreCorrupt("a held call has no approval")
    with parts.store.reader() as reader:
        approval = find(reader, held.approval.id)
    if approval is None:
        raise StoreCorrupt("a held call has no approval")
    now = parts.clock()
    if approval.state == "pending":
        if evaluation.combined.outcome is Outcome.BLOCK:
            yield from _move(parts, approval, "cancelled", now)
            return None
        if now < approval.expires_at:
            return held
        yield from _move(parts, approval, "expired", now)
        return refused(held, "expired")
    if approval.state == "approved":
        if now >= (approval.resolved_at or 0) + REDEEMABLE_MICROS:
            yield from _move(parts, approval, "expired", now)
            return refused(held, "expired")
        asks_again = policy_digest != approval.policy_digest and evaluation.combined.outcome > Outcome.SANITIZE
        if evaluation.combined.outcome is Outcome.BLOCK or asks_again:
            yield from _move(parts, approval, "cancelled", now)
            return None
        return (yield from _redeem(parts, subject, state, approval, known, held, now, evaluation, attended))
    if approval.state == "redeemed":
        return replace(
            refused(held, "cancelled"),
            reason=Reason.CONFLICT,
            message="this approval was already used",
        )
    return refused(held, approval.state)


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


def _redeem(
    parts: Parts,
    subject: Subject,
    state: ControlState,
    approval: Approval,
    known: Known,
    held: Decision,
    now: int,
    evaluation: Evaluation,
    attended: Attended | None,
) -> Generator[Unit, tuple[Recorded, ...], Decision]:
    permit_id = new_id()
    unit = transition(
        approval,
        "redeemed",
        permit_id=permit_id,
        receipt_id=new_id(),
        principal=subject.principal.id,
        now=now,
        epoch=state.epoch,
    )
    if attended is not None:
        unit = _under_mission(unit, attended, evaluation)
    recorded = (yield unit)[0]
    outcome = Outcome.ALLOW if known.patched is None else Outcome.SANITIZE
    claims: dict[str, Any] = {
        "sub": subject.agent,
        "tool": approval.tool,
        "server": approval.server,
        "call_id": approval.call_id,
        "call_digest": held.call_digest,
        "session": approval.session,
        "approval_id": approval.id,
        "receipt": recorded.index,
    }
    notify(
        parts.listeners,
        Event(kind="redemption", members={"approval_id": approval.id, "tool": approval.tool}, recorded=recorded),
    )
    return replace(
        held,
        outcome=outcome,
        reason=Reason.NONE,
        message=message_for(outcome, Reason.NONE),
        approval=None,
        arguments=known.patched,
        permit=mint(parts.keys.permit_signer(), now=now, permit_id=permit_id, claims=claims),
        receipt=ReceiptRef(id=recorded.receipt_id, index=recorded.index, leaf_hash=recorded.leaf_hash.hex()),
    )


def _under_mission(unit: Unit, attended: Attended, evaluation: Evaluation) -> Unit:
    """The redemption with what it takes from budgets: a held call takes nothing until it is released."""
    apply = attended.with_writes(unit.apply, evaluation, runs=True)
    members = attended.members(evaluation)

    def marked(transaction: Transaction) -> Sequence[Draft]:
        return [replace(draft, members={**draft.members, **members}) for draft in apply(transaction)]

    return replace(unit, apply=marked)


def _move(parts: Parts, approval: Approval, to: State, now: int) -> Generator[Unit, tuple[Recorded, ...], None]:
    yield transition(approval, to, receipt_id=new_id(), principal="gate", now=now)
