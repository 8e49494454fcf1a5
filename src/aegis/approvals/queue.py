"""The queue in the store: every transition is one unit, a compare-and-set and its receipt, together or not at all.

What is decided on is always what is stored at that moment, whichever process wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aegis.approvals import grants, machine
from aegis.approvals.counts import check_hour, check_room, count_answer, count_pending
from aegis.approvals.grants import Grant, granted_by
from aegis.approvals.model import COLLECTION, Approval, Scope, State, from_document, to_document
from aegis.approvals.receipts import grant_receipt, receipt
from aegis.audit.writer import Apply, Unit
from aegis.core.ports import Reader, Transaction
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall, StoreConflict

NewId = Callable[[], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Narrowed:
    """Other arguments for a held call: their digest, the files that they name, and the sealed arguments."""

    call_digest: str
    identities: str | None
    call_commitment: str
    payload_commitment: str
    payload: bytes
    salt: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Ballot:
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


def answered(seen: Approval, ballot: Ballot, new_id: NewId) -> Unit:
    """The unit that counts a person's answer to `seen`, as they were shown it.

    Recording it raises `InvalidCall` (409) where it is not pending, another call is held by now, or the
    person said yes before; (429) where they said yes too often.
    """

    def apply(transaction: Transaction) -> Sequence[Draft]:
        stored = load(transaction, seen.id)
        machine.check_pending(stored, ballot.now)
        if stored.call_digest != seen.call_digest:
            raise InvalidCall("the call was narrowed meanwhile", code="conflict", hint="load it again", status=409)
        if not ballot.approves:
            moved = machine.deny(stored, by=ballot.by, now=ballot.now, reason=ballot.reason, receipt_id=new_id())
            _write(transaction, stored, moved)
            return (_signed(moved, "denied", ballot.by, (ballot.by,)),)
        check_hour(transaction, ballot.by, ballot.hourly_limit, ballot.now)
        drafts: list[Draft] = []
        before = stored
        if ballot.narrowed is not None:
            stored = _narrowed(stored, ballot, ballot.narrowed, new_id, drafts)
        moved = machine.approve(
            stored,
            by=ballot.by,
            now=ballot.now,
            quorum=ballot.quorum,
            scope=ballot.scope,
            reason=ballot.reason,
            receipt_id=new_id(),
        )
        final = moved.state == "approved"
        action = "approved" if final else "voted"
        drafts.append(_signed(moved, action, ballot.by, moved.voters if final else (ballot.by,)))
        if final and machine.session_wide(moved) and ballot.grant_seconds:
            grant = granted_by(moved, grant_id=new_id(), seconds=ballot.grant_seconds, now=ballot.now)
            grants.write(transaction, grant)
            moved = replace(moved, grant=grant.id)
            drafts.append(grant_receipt(grant, "open", receipt_id=new_id(), principal=ballot.by))
        _write(transaction, before, replace(moved, version=before.version + 1))
        if ballot.hourly_limit is not None:
            count_answer(transaction, ballot.by, ballot.now)
        return drafts

    return Unit(apply=apply)


def transition(
    approval: Approval,
    to: State,
    *,
    receipt_id: str,
    principal: str,
    permit_id: str | None = None,
    epoch: int | None = None,
) -> Unit:
    """The unit that moves `approval` (as the caller last read it) to `to`, with its receipt.

    Recording it raises `StoreConflict` when the stored approval moved meanwhile, or when the table
    has no such transition.
    """

    def apply(transaction: Transaction) -> Sequence[Draft]:
        stored = find(transaction, approval.id)
        if stored is None or stored.version != approval.version:
            raise StoreConflict("the approval is not in that state any more")
        moved = machine.move(stored, to, receipt_id=receipt_id)
        _write(transaction, stored, moved)
        return (_moved(moved, principal, permit_id),)

    return Unit(apply=apply, epoch=epoch)


def passed_on(approval: Approval, *, now: int, receipt_id: str) -> Unit:
    """The unit that records whose turn it is now; recording it raises `StoreConflict` where that is on record."""

    def apply(transaction: Transaction) -> Sequence[Draft]:
        stored = load(transaction, approval.id)
        moved = machine.pass_on(stored, now=now, receipt_id=receipt_id)
        _write(transaction, stored, moved)
        return (_signed(moved, "passed_on", "gate", ()),)

    return Unit(apply=apply)


def fatigued(approval_id: str, *, person: str, receipt_id: str) -> Unit:
    """The unit that flags an approver's fatigue, on the approval and as an alarm, once for each approval."""

    def apply(transaction: Transaction) -> Sequence[Draft]:
        stored = load(transaction, approval_id)
        _write(transaction, stored, machine.flag_fatigue(stored, by=person))
        alarm = receipt(
            stored, "approver_fatigue", kind="alarm", receipt_id=receipt_id, principal="gate", approvers=(person,)
        )
        return (alarm,)

    return Unit(apply=apply)


def redeemed_by_grant(approval: Approval, grant: Grant, *, permit_id: str, new_id: NewId) -> Apply:
    """The write that opens, approves and redeems `approval` at once, by `grant`, with the call's own decision.

    Raises `StoreConflict` where the grant changed meanwhile.
    """

    def apply(transaction: Transaction) -> Sequence[Draft]:
        grants.check_unchanged(transaction, grant)
        approved = replace(approval, state="approved", grant=grant.id, receipt_id=new_id())
        moved = replace(machine.move(approved, "redeemed", receipt_id=new_id()), version=1)
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
        raise InvalidCall("there is no such approval", code="not_found", status=404)
    return stored


def _write(transaction: Transaction, before: Approval, after: Approval) -> None:
    """Store what an approval became; it is counted as waiting for as long as it does."""
    transaction.put_document(to_document(after))
    if before.state == "pending" and after.state != "pending":
        count_pending(transaction, after.principal, -1)


def _narrowed(stored: Approval, ballot: Ballot, narrowed: Narrowed, new_id: NewId, drafts: list[Draft]) -> Approval:
    moved = machine.narrow(
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
