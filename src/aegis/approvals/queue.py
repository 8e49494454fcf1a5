"""The state machine of an approval: `pending -> approved | denied | expired | cancelled`, `approved -> redeemed`.

Every transition is one unit: a compare-and-set on the stored state and a receipt, together or not
at all. A transition that is not in the table is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from aegis.approvals.model import COLLECTION, Approval, State, from_document, to_document
from aegis.audit.writer import Apply, Unit
from aegis.core.outcome import Reason
from aegis.core.ports import Reader, Transaction
from aegis.core.receipt import Draft, Kind
from aegis.errors import StoreConflict

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


def opened(approval: Approval) -> Apply:
    """The write that opens `approval`, together with the held call's own decision."""

    def apply(transaction: Transaction) -> Sequence[Draft]:
        transaction.put_document(to_document(approval))
        return ()

    return apply


def find(reader: Reader, approval_id: str) -> Approval | None:
    """The approval of that id, or `None`."""
    document = reader.document(COLLECTION, approval_id)
    return None if document is None else from_document(document)


def transition(
    approval: Approval,
    to: State,
    *,
    receipt_id: str,
    principal: str,
    now: int,
    approvers: tuple[str, ...] = (),
    reason: str | None = None,
    permit_id: str | None = None,
    epoch: int | None = None,
) -> Unit:
    """The unit that moves `approval` (as the caller last read it) to `to`, with its receipt.

    Recording it raises `StoreConflict` when the stored approval moved meanwhile, or when the table
    has no such transition.
    """

    def apply(transaction: Transaction) -> Sequence[Draft]:
        stored = find(transaction, approval.id)
        if stored is None or stored.version != approval.version or to not in TRANSITIONS[stored.state]:
            raise StoreConflict("the approval is not in that state any more")
        resolved = to in ("approved", "denied")
        moved = replace(
            stored,
            state=to,
            version=stored.version + 1,
            resolved_by=principal if resolved else stored.resolved_by,
            resolved_at=now if resolved else stored.resolved_at,
            reason=reason if resolved else stored.reason,
            receipt_id=receipt_id,
        )
        transaction.put_document(to_document(moved))
        receipt = _receipt(moved, receipt_id=receipt_id, principal=principal, approvers=approvers)
        if permit_id is not None:
            receipt["permit_id"] = permit_id
        return (Draft(members=receipt),)

    return Unit(apply=apply, epoch=epoch)


def _receipt(approval: Approval, *, receipt_id: str, principal: str, approvers: tuple[str, ...]) -> dict[str, Any]:
    kind: Kind = "redemption" if approval.state == "redeemed" else "approval"
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
        "action": approval.state,
    }
    if approval.session:
        members["session"] = approval.session
    if approval.server is not None:
        members["server"] = approval.server
    if approvers:
        members["approvers"] = list(approvers)
    return members
