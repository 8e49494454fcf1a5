"""The queue in the store: every transition is one unit, a compare-and-set and its receipt, together or not at all.

What is decided on is always what is stored at that moment, whichever process wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from aegis.approvals import grants
from aegis.approvals.grants import Grant, grant_receipt, granted_by
from aegis.approvals.values import (
    COLLECTION,
    EVIDENCE,
    Approval,
    OfferedGrant,
    Scope,
    State,
    Vote,
    check_hour,
    check_room,
    count_answer,
    count_pending,
    deferral_members,
    from_document,
    resolution_of,
    to_document,
)
from aegis.core.outcome import Reason
from aegis.core.ports import Reader, Transaction
from aegis.core.receipt import Draft, Kind
from aegis.detect.fold import name_skeleton
from aegis.errors import InvalidCall, StoreConflict
from aegis.log.writer import Apply, Unit

# The state machine of an approval, as pure functions: an approval and what happens in, the next approval out.
#
#     pending   -> approved | denied | expired | cancelled
#     approved  -> redeemed | expired | cancelled
#
# Votes, narrowing and a passed turn leave it pending. What is not in the table is refused.

TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    "pending": frozenset({"approved", "denied", "expired", "cancelled"}),
    "approved": frozenset({"redeemed", "expired", "cancelled"}),
    "denied": frozenset(),
    "expired": frozenset(),
    "cancelled": frozenset(),
    "redeemed": frozenset(),
}
REDEEMABLE_MICROS: Final = 3_600_000_000  # an approved call can be made for one hour

REASON_OF: Final[dict[State, Reason]] = {
    "denied": Reason.APPROVAL_DENIED,
    "expired": Reason.APPROVAL_EXPIRED,
    "cancelled": Reason.APPROVAL_CANCELLED,
}


def move(approval: Approval, to: State, *, receipt_id: str) -> Approval:
    """The approval in the state `to`; raises `StoreConflict` where the table has no such transition."""
    if to not in TRANSITIONS[approval.state]:
        raise StoreConflict("the approval is not in that state any more")
    return structs.replace(approval, state=to, version=approval.version + 1, receipt_id=receipt_id)


def approve(
    approval: Approval, *, by: str, now: int, quorum: int, scope: Scope, reason: str | None, receipt_id: str
) -> Approval:
    """With the yes of `by`: approved once `quorum` different people said so, pending until then.

    Names that look alike are one person's. Raises `InvalidCall` (409) where it is not pending or `by` said yes before.
    """
    check_pending(approval, now)
    if name_skeleton(by) in map(name_skeleton, approval.voters):
        raise InvalidCall("you approved this call before", code="already_answered", status=409)
    voted = structs.replace(approval, votes=(*approval.votes, Vote(by=by, at=now, scope=scope)), reason=reason)
    if len(voted.votes) < max(quorum, approval.quorum):
        return structs.replace(voted, version=approval.version + 1, receipt_id=receipt_id)
    return structs.replace(move(voted, "approved", receipt_id=receipt_id), resolved_by=by, resolved_at=now)


def deny(approval: Approval, *, by: str, now: int, reason: str | None, receipt_id: str) -> Approval:
    """Denied by `by`: one no is enough. Raises `InvalidCall` (409) where it is not pending."""
    check_pending(approval, now)
    return structs.replace(
        move(approval, "denied", receipt_id=receipt_id), resolved_by=by, resolved_at=now, reason=reason
    )


def narrow(approval: Approval, *, now: int, call_digest: str, identities: str | None, receipt_id: str) -> Approval:
    """For other arguments, with nobody's yes: what was agreed to before was another call.

    Raises `InvalidCall` (409) where it is not pending.
    """
    check_pending(approval, now)
    return structs.replace(
        approval,
        call_digest=call_digest,
        identities=identities,
        narrowed_by=receipt_id,
        narrowed_at=now,
        votes=(),
        receipt_id=receipt_id,
        version=approval.version + 1,
    )


def pass_on(approval: Approval, *, now: int, receipt_id: str) -> Approval:
    """In the turn that `now` falls in; raises `StoreConflict` where that is on record or it is not pending."""
    turn = approval.turn_at(now)
    if approval.state_at(now) != "pending" or turn <= approval.turn:
        raise StoreConflict("the approval was passed on already")
    return structs.replace(approval, turn=turn, receipt_id=receipt_id, version=approval.version + 1)


def flag_fatigue(approval: Approval, *, by: str) -> Approval:
    """Flagged: `by` answered as often as one person may in an hour; raises `StoreConflict` where that is known."""
    if approval.state != "pending" or by in approval.fatigued:
        raise StoreConflict("the approval is flagged already")
    return structs.replace(approval, fatigued=(*approval.fatigued, by), version=approval.version + 1)


def session_wide(approval: Approval) -> bool:
    """Whether everybody who said yes meant the session: the narrowest wish counts."""
    return bool(approval.session) and all(vote.scope == "session" for vote in approval.votes)


def is_late(approval: Approval, now: int) -> bool:
    """Whether an approved call was not made within the hour that it stays redeemable."""
    return now >= (approval.resolved_at or 0) + REDEEMABLE_MICROS


def check_pending(approval: Approval, now: int) -> None:
    """Guarantee that it can be answered at `now`; raises `InvalidCall` (409) otherwise."""
    state = approval.state_at(now)
    if state != "pending":
        raise InvalidCall(f"this approval is {state}", code="not_pending", status=409)


# What the log says of an approval: one receipt for each transition, naming who brought it about.


def receipt(
    approval: Approval,
    action: str,
    *,
    receipt_id: str,
    principal: str,
    kind: Kind = "approval",
    approvers: tuple[str, ...] = (),
    permit_id: str | None = None,
    grant_id: str | None = None,
) -> Draft:
    """The receipt of `action` on an approval; `principal` brought it about, `approvers` stand behind it."""
    members: dict[str, Any] = {
        "kind": kind,
        "receipt_id": receipt_id,
        "parent": approval.decision_id,
        "principal": principal,
        "agent": approval.agent,
        "call_id": approval.call_id,
        "tool": approval.tool,
        "policy_digest": approval.policy_digest,
        "approval_id": approval.id,
        "action": action,
    }
    if approval.session:
        members["session"] = approval.session
    if approval.server is not None:
        members["server"] = approval.server
    if approval.waiting_for:
        members["deferral"] = deferral_members(approval, resolution_of(approval))
    if approvers:
        members["approvers"] = list(approvers)
    if permit_id is not None:
        members["permit_id"] = permit_id
    if grant_id is not None:
        members["grant_id"] = grant_id
    return Draft(members=members)


NewId = Callable[[], str]
FLOW_SECONDS: Final = 30 * 86_400  # a grant of data flow ends with its session, and in any case by then


class Narrowed(Struct, frozen=True, kw_only=True):
    """Other arguments for a held call: their digest, the files that they name, and the sealed arguments."""

    call_digest: str
    identities: str | None
    call_commitment: str
    payload_commitment: str
    payload: bytes
    salt: bytes


class Ballot(Struct, frozen=True, kw_only=True):
    """One person's answer to what they were shown.

    `quorum`, `hourly_limit` and `grant_seconds` are what the policy in force asks for. `narrowed` takes
    the place of the arguments before the yes counts.
    """

    by: str
    approves: bool
    now: int
    quorum: int
    hourly_limit: int | None
    grant_seconds: int = 0
    scope: Scope = "once"
    reason: str | None = None
    narrowed: Narrowed | None = None
    granted: tuple[OfferedGrant, ...] = ()
    tell: Callable[[Transaction, Grant], None] | None = None


def find(reader: Reader, approval_id: str) -> Approval | None:
    """The approval of that id, or `None`."""
    document = reader.document(COLLECTION, approval_id)
    return None if document is None else from_document(document)


def opened(approval: Approval, max_pending: int) -> Apply:
    """The write that opens `approval`, together with the held call's own decision.

    Raises `TooManyPending` where its principal has `max_pending` calls waiting.
    """

    def apply(transaction: Transaction) -> Sequence[Draft]:
        check_room(transaction, approval.principal, max_pending)
        transaction.put_document(to_document(approval))
        count_pending(transaction, approval.principal, 1)
        return ()

    return apply


class ApprovalChange(Struct, frozen=True, kw_only=True):
    """What an approval becomes, and the receipts that say so."""

    after: Approval
    drafts: Sequence[Draft]


def changed(
    approval_id: str,
    step: Callable[[Transaction, Approval], ApprovalChange],
    *,
    version: int | None = None,
    epoch: int | None = None,
    became: Callable[[Approval], None] | None = None,
) -> Unit:
    """The unit of one change: the approval is loaded inside of the transaction, checked and moved by `step`, written.

    `version` is that of the approval as the caller last read it, where nothing may have moved since: recording it
    raises `StoreConflict` otherwise. `became` is told what was written.
    """

    def apply(transaction: Transaction) -> Sequence[Draft]:
        stored = find(transaction, approval_id)
        if version is not None and (stored is None or stored.version != version):
            raise StoreConflict("the approval is not in that state any more")
        if stored is None:
            raise _unknown()
        change = step(transaction, stored)
        transaction.put_document(to_document(change.after))
        if stored.state == "pending" and change.after.state != "pending":  # it is counted for as long as it waits
            count_pending(transaction, change.after.principal, -1)
        if became is not None:
            became(change.after)
        return change.drafts

    return Unit(apply=apply, epoch=epoch)


def answered(seen: Approval, ballot: Ballot, new_id: NewId, became: Callable[[Approval], None] | None = None) -> Unit:
    """The unit that counts a person's answer to `seen`, as they were shown it.

    Recording it raises `InvalidCall` (409) where it is not pending, another call is held by now, or the
    person said yes before; (429) where they said yes too often.
    """

    def step(transaction: Transaction, stored: Approval) -> ApprovalChange:
        check_pending(stored, ballot.now)
        if stored.call_digest != seen.call_digest:
            raise InvalidCall("the call was narrowed meanwhile", code="conflict", hint="load it again", status=409)
        if not ballot.approves:
            moved = deny(stored, by=ballot.by, now=ballot.now, reason=ballot.reason, receipt_id=new_id())
            return ApprovalChange(after=moved, drafts=(_signed(moved, "denied", ballot.by, (ballot.by,)),))
        check_hour(transaction, ballot.by, ballot.hourly_limit, ballot.now)
        drafts: list[Draft] = []
        moved = stored
        if ballot.narrowed is not None:
            moved = _narrowed(stored, ballot, ballot.narrowed, new_id, drafts)
        moved = approve(
            moved,
            by=ballot.by,
            now=ballot.now,
            quorum=ballot.quorum,
            scope=ballot.scope,
            reason=ballot.reason,
            receipt_id=new_id(),
        )
        final = moved.state == "approved"
        drafts.append(
            _signed(moved, "approved" if final else "voted", ballot.by, moved.voters if final else (ballot.by,))
        )
        if final and session_wide(moved) and ballot.grant_seconds:
            grant = granted_by(moved, grant_id=new_id(), seconds=ballot.grant_seconds, now=ballot.now)
            grants.write(transaction, grant)
            moved = structs.replace(moved, grant=grant.id)
            drafts.append(grant_receipt(grant, "open", receipt_id=new_id(), principal=ballot.by))
        if final and ballot.granted and ballot.tell is not None:
            grant = structs.replace(
                granted_by(moved, grant_id=new_id(), seconds=FLOW_SECONDS, now=ballot.now), flow=ballot.granted
            )
            grants.write(transaction, grant)
            ballot.tell(transaction, grant)
            moved = structs.replace(moved, grant=grant.id)
            drafts.append(grant_receipt(grant, "open", receipt_id=new_id(), principal=ballot.by))
        if ballot.hourly_limit is not None:
            count_answer(transaction, ballot.by, ballot.now)
        return ApprovalChange(after=structs.replace(moved, version=stored.version + 1), drafts=drafts)

    return changed(seen.id, step, became=became)


def transition(
    approval: Approval,
    to: State,
    *,
    receipt_id: str,
    principal: str,
    permit_id: str | None = None,
    epoch: int | None = None,
    members: Mapping[str, Any] | None = None,
) -> Unit:
    """The unit that moves `approval` (as the caller last read it) to `to`, with its receipt and its other `members`.

    Recording it raises `StoreConflict` when the stored approval moved meanwhile, or when the table
    has no such transition.
    """

    def step(_: Transaction, stored: Approval) -> ApprovalChange:
        change = ended(stored, to, receipt_id=receipt_id, principal=principal, permit_id=permit_id)
        if members:
            said = change.drafts[0]
            change = structs.replace(change, drafts=(structs.replace(said, members=said.members | dict(members)),))
        return change

    return changed(approval.id, step, version=approval.version, epoch=epoch)


def ended(
    approval: Approval, to: State, *, receipt_id: str, principal: str, permit_id: str | None = None
) -> ApprovalChange:
    """The change that moves `approval` to `to`, with its receipt; raises `StoreConflict` where that cannot be."""
    moved = move(approval, to, receipt_id=receipt_id)
    return ApprovalChange(after=moved, drafts=(_moved(moved, principal, permit_id),))


def resolved_by_evidence(approval: Approval, *, now: int, receipt_id: str) -> Unit:
    """The unit that ends the wait of a deferral: what it waited for is there.

    Recording it raises `StoreConflict` where it is not pending any more.
    """

    def step(_: Transaction, stored: Approval) -> ApprovalChange:
        if stored.state_at(now) != "pending":
            raise StoreConflict("the approval is not in that state any more")
        moved = move(stored, "approved", receipt_id=receipt_id)
        moved = structs.replace(
            moved, resolved_by=EVIDENCE, resolved_at=now, votes=()
        )  # a yes before it decides nothing
        return ApprovalChange(after=moved, drafts=(_signed(moved, "approved", "gate", ()),))

    return changed(approval.id, step)


def passed_on(approval: Approval, *, now: int, receipt_id: str) -> Unit:
    """The unit that records whose turn it is now; recording it raises `StoreConflict` where that is on record."""

    def step(_: Transaction, stored: Approval) -> ApprovalChange:
        moved = pass_on(stored, now=now, receipt_id=receipt_id)
        return ApprovalChange(after=moved, drafts=(_signed(moved, "passed_on", "gate", ()),))

    return changed(approval.id, step)


def fatigued(approval_id: str, *, person: str, receipt_id: str) -> Unit:
    """The unit that flags an approver's fatigue, on the approval and as an alarm, once for each approval."""

    def step(_: Transaction, stored: Approval) -> ApprovalChange:
        alarm = receipt(
            stored, "approver_fatigue", kind="alarm", receipt_id=receipt_id, principal="gate", approvers=(person,)
        )
        return ApprovalChange(after=flag_fatigue(stored, by=person), drafts=(alarm,))

    return changed(approval_id, step)


def redeemed_by_grant(approval: Approval, grant: Grant, *, permit_id: str, new_id: NewId) -> Apply:
    """The write that opens, approves and redeems `approval` at once, by `grant`, with the call's own decision.

    Raises `StoreConflict` where the grant changed meanwhile.
    """

    def apply(transaction: Transaction) -> Sequence[Draft]:
        grants.check_unchanged(transaction, grant)
        approved = structs.replace(approval, state="approved", grant=grant.id, receipt_id=new_id())
        moved = structs.replace(move(approved, "redeemed", receipt_id=new_id()), version=1)
        transaction.put_document(to_document(moved))
        yes = receipt(
            approved,
            "approved",
            receipt_id=approved.receipt_id or "",
            principal="gate",
            approvers=grant.approvers,
            grant_id=grant.id,
        )
        return (yes, _moved(moved, approval.principal, permit_id))

    return apply


def revoked(grant_id: str, *, by: str, receipt_id: str) -> Unit:
    """The unit that takes a grant back; recording it raises `InvalidCall` (404, 409)."""

    def apply(transaction: Transaction) -> Sequence[Draft]:
        grant = grants.revoke(transaction, grant_id, by=by)
        return (grant_receipt(grant, "revoke", receipt_id=receipt_id, principal=by),)

    return Unit(apply=apply)


def load(reader: Reader, approval_id: str) -> Approval:
    """The approval of that id; raises `InvalidCall` (404) where there is none."""
    stored = find(reader, approval_id)
    if stored is None:
        raise _unknown()
    return stored


def _unknown() -> InvalidCall:
    return InvalidCall("there is no such approval", code="not_found", status=404)


def _narrowed(stored: Approval, ballot: Ballot, narrowed: Narrowed, new_id: NewId, drafts: list[Draft]) -> Approval:
    moved = narrow(
        stored,
        now=ballot.now,
        call_digest=narrowed.call_digest,
        identities=narrowed.identities,
        receipt_id=new_id(),
    )
    said = _signed(moved, "narrowed", ballot.by, (ballot.by,))
    commitments = {"call_commitment": narrowed.call_commitment, "payload_commitment": narrowed.payload_commitment}
    drafts.append(Draft(members={**said.members, **commitments}, payload=narrowed.payload, salt=narrowed.salt))
    return moved


def _signed(approval: Approval, action: str, principal: str, approvers: tuple[str, ...]) -> Draft:
    return receipt(approval, action, receipt_id=approval.receipt_id or "", principal=principal, approvers=approvers)


def _moved(approval: Approval, principal: str, permit_id: str | None) -> Draft:
    return receipt(
        approval,
        approval.state,
        kind="redemption" if approval.state == "redeemed" else "approval",
        receipt_id=approval.receipt_id or "",
        principal=principal,
        permit_id=permit_id,
        grant_id=approval.grant if approval.state == "redeemed" else None,
    )
