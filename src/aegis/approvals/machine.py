"""The state machine of an approval, as pure functions: an approval and what happens in, the next approval out.

    pending   -> approved | denied | expired | cancelled
    approved  -> redeemed | expired | cancelled

Votes, narrowing and a passed turn leave it pending. What is not in the table is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aegis.approvals.model import Approval, Scope, State, Vote
from aegis.core.outcome import Reason
from aegis.errors import InvalidCall, StoreConflict
from aegis.facts.fold import name_skeleton

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
    return replace(approval, state=to, version=approval.version + 1, receipt_id=receipt_id)


def approve(
    approval: Approval, *, by: str, now: int, quorum: int, scope: Scope, reason: str | None, receipt_id: str
) -> Approval:
    """With the yes of `by`: approved once `quorum` different people said so, pending until then.

    Names that look alike are one person's. Raises `InvalidCall` (409) where it is not pending or `by` said yes before.
    """
    check_pending(approval, now)
    if name_skeleton(by) in map(name_skeleton, approval.voters):
        raise InvalidCall("you approved this call before", code="already_answered", status=409)
    voted = replace(approval, votes=(*approval.votes, Vote(by=by, at=now, scope=scope)), reason=reason)
    if len(voted.votes) < max(quorum, approval.quorum):
        return replace(voted, version=approval.version + 1, receipt_id=receipt_id)
    return replace(move(voted, "approved", receipt_id=receipt_id), resolved_by=by, resolved_at=now)


def deny(approval: Approval, *, by: str, now: int, reason: str | None, receipt_id: str) -> Approval:
    """Denied by `by`: one no is enough. Raises `InvalidCall` (409) where it is not pending."""
    check_pending(approval, now)
    return replace(move(approval, "denied", receipt_id=receipt_id), resolved_by=by, resolved_at=now, reason=reason)


def narrow(approval: Approval, *, now: int, call_digest: str, identities: str | None, receipt_id: str) -> Approval:
    """For other arguments, with nobody's yes: what was agreed to before was another call.

    Raises `InvalidCall` (409) where it is not pending.
    """
    check_pending(approval, now)
    return replace(
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
    return replace(approval, turn=turn, receipt_id=receipt_id, version=approval.version + 1)


def flag_fatigue(approval: Approval, *, by: str) -> Approval:
    """Flagged: `by` answered as often as one person may in an hour; raises `StoreConflict` where that is known."""
    if approval.state != "pending" or by in approval.fatigued:
        raise StoreConflict("the approval is flagged already")
    return replace(approval, fatigued=(*approval.fatigued, by), version=approval.version + 1)


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
