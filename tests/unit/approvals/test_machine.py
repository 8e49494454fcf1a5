"""The transitions of an approval, each one that is allowed and each one that is not."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from aegis.approvals import queue
from aegis.approvals.values import Approval, Scope, State, Vote
from aegis.core.outcome import Reason
from aegis.errors import InvalidCall, StoreConflict
from support.queues import MINUTE, OPENED, held

STATES: tuple[State, ...] = get_args(State)
ALLOWED = {
    ("pending", "approved"), ("pending", "denied"), ("pending", "expired"), ("pending", "cancelled"),
    ("approved", "redeemed"), ("approved", "expired"), ("approved", "cancelled"),
}  # fmt: skip


def approve(approval: Approval, by: str = "ann", now: int = OPENED, quorum: int = 1, scope: Scope = "once") -> Approval:
    return queue.approve(approval, by=by, now=now, quorum=quorum, scope=scope, reason="because", receipt_id="r-1")


def refusal(call: Any) -> tuple[str, int, str]:
    with pytest.raises(InvalidCall) as caught:
        call()
    return caught.value.code, caught.value.status, caught.value.message


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("after", STATES)
def test_only_what_is_in_the_table_happens(before: State, after: State) -> None:
    approval = held(state=before)
    if (before, after) in ALLOWED:
        moved = queue.move(approval, after, receipt_id="r-1")
        assert (moved.state, moved.version, moved.receipt_id) == (after, approval.version + 1, "r-1")
    else:
        with pytest.raises(StoreConflict):
            queue.move(approval, after, receipt_id="r-1")


def test_the_reasons_of_a_refusal() -> None:
    assert queue.REASON_OF == {
        "denied": Reason.APPROVAL_DENIED,
        "expired": Reason.APPROVAL_EXPIRED,
        "cancelled": Reason.APPROVAL_CANCELLED,
    }


def test_one_yes_approves_where_one_is_enough() -> None:
    done = approve(held(), now=OPENED + 1)
    assert (done.state, done.resolved_by, done.resolved_at, done.reason) == ("approved", "ann", OPENED + 1, "because")
    assert (done.version, done.receipt_id) == (2, "r-1")
    assert done.votes == (Vote(by="ann", at=OPENED + 1, scope="once"),)


@pytest.mark.parametrize(("of_call", "of_policy"), [(2, 1), (1, 2), (2, 2)])
def test_the_larger_quorum_counts(of_call: int, of_policy: int) -> None:
    first = approve(held(quorum=of_call), quorum=of_policy)
    assert (first.state, first.resolved_by, first.resolved_at, first.version) == ("pending", None, None, 2)
    assert (first.receipt_id, first.reason, first.voters) == ("r-1", "because", ("ann",))
    second = approve(first, by="ben", quorum=of_policy)
    assert (second.state, second.resolved_by, second.voters, second.version) == ("approved", "ben", ("ann", "ben"), 3)


def test_nobody_counts_twice() -> None:
    first = approve(held(quorum=2))
    assert refusal(lambda: approve(first)) == ("already_answered", 409, "you approved this call before")


def test_one_no_denies() -> None:
    voted = approve(held(quorum=2))
    done = queue.deny(voted, by="ben", now=OPENED + 7, reason="no", receipt_id="r-2")
    assert (done.state, done.resolved_by, done.resolved_at, done.reason) == ("denied", "ben", OPENED + 7, "no")
    assert (done.version, done.receipt_id) == (3, "r-2")


def test_what_is_narrowed_has_nobodys_yes() -> None:
    voted = approve(held(quorum=2, identities="old"))
    other = queue.narrow(voted, now=OPENED + 3, call_digest="other", identities="files", receipt_id="r-3")
    assert (other.call_digest, other.identities, other.narrowed_by, other.narrowed_at) == (
        "other", "files", "r-3", OPENED + 3,
    )  # fmt: skip
    assert (other.votes, other.state, other.receipt_id, other.version) == ((), "pending", "r-3", 3)
    assert (voted.held_at, other.held_at) == (OPENED, OPENED + 3)


@pytest.mark.parametrize("state", [state for state in STATES if state != "pending"])
def test_only_what_is_pending_can_be_answered(state: State) -> None:
    approval = held(state=state)
    expected = ("not_pending", 409, f"this approval is {state}")
    assert refusal(lambda: approve(approval)) == expected
    assert refusal(lambda: queue.deny(approval, by="ann", now=OPENED, reason=None, receipt_id="r")) == expected
    narrow = refusal(lambda: queue.narrow(approval, now=OPENED, call_digest="x", identities=None, receipt_id="r"))
    assert narrow == expected
    with pytest.raises(StoreConflict):
        queue.flag_fatigue(approval, by="ann")
    with pytest.raises(StoreConflict):
        queue.pass_on(held(state=state, turn_micros=MINUTE), now=OPENED + MINUTE, receipt_id="r")


def test_time_that_is_over_is_over_to_the_microsecond() -> None:
    end = held().expires_at
    assert approve(held(), now=end - 1).state == "approved"
    assert refusal(lambda: approve(held(), now=end)) == ("not_pending", 409, "this approval is expired")
    assert (held().state_at(end - 1), held().state_at(end)) == ("pending", "expired")


def test_a_turn_is_passed_on_once() -> None:
    approval = held(turn_micros=MINUTE)
    with pytest.raises(StoreConflict):
        queue.pass_on(approval, now=OPENED + MINUTE - 1, receipt_id="r")
    passed = queue.pass_on(approval, now=OPENED + MINUTE, receipt_id="r-4")
    assert (passed.turn, passed.receipt_id, passed.version, passed.state) == (1, "r-4", 2, "pending")
    with pytest.raises(StoreConflict):
        queue.pass_on(passed, now=OPENED + MINUTE, receipt_id="r")
    assert queue.pass_on(passed, now=OPENED + 3 * MINUTE, receipt_id="r").turn == 3
    with pytest.raises(StoreConflict):
        queue.pass_on(approval, now=OPENED + 5 * MINUTE, receipt_id="r")


def test_fatigue_is_flagged_once_for_each_person() -> None:
    once = queue.flag_fatigue(held(), by="ann")
    assert (once.fatigued, once.version, once.state) == (("ann",), 2, "pending")
    assert queue.flag_fatigue(once, by="ben").fatigued == ("ann", "ben")
    with pytest.raises(StoreConflict):
        queue.flag_fatigue(once, by="ann")


@pytest.mark.parametrize(
    ("scopes", "session", "wide"),
    [
        (("session",), "s-1", True),
        (("session", "session"), "s-1", True),
        (("session", "once"), "s-1", False),
        (("once",), "s-1", False),
        (("session",), "", False),
    ],
)
def test_the_narrowest_wish_counts(scopes: tuple[Scope, ...], session: str, wide: bool) -> None:
    votes = tuple(Vote(by=f"p-{number}", at=OPENED, scope=scope) for number, scope in enumerate(scopes))
    assert queue.session_wide(held(votes=votes, session=session)) is wide


def test_an_approved_call_can_be_made_for_one_hour() -> None:
    done = approve(held(), now=OPENED)
    hour = 60 * MINUTE
    assert hour == queue.REDEEMABLE_MICROS
    assert (queue.is_late(done, OPENED + hour - 1), queue.is_late(done, OPENED + hour)) == (False, True)
    assert queue.is_late(held(state="approved", resolved_at=None), OPENED)  # a record without a time is late
    assert not queue.is_late(held(state="approved", resolved_at=None), hour - 1)
    assert queue.is_late(held(state="approved", resolved_at=None), hour)
