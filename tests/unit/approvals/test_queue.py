"""Every transition with its receipt, in one transaction: together or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from aegis.approvals import grants, queue
from aegis.approvals.grants import Grant, granted_by
from aegis.approvals.queue import Ballot, Narrowed
from aegis.approvals.values import Approval, TooManyPending, Vote, to_document
from aegis.core.canonical import SALT_BYTES
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall, StoreConflict
from aegis.log.writer import Apply
from aegis.store.sqlite import MemoryStore
from support.queues import MINUTE, OPENED, held

NARROWED = Narrowed(
    call_digest="sha-256:less",
    identities="files",
    call_commitment="call",
    payload_commitment="payload",
    payload=b"{}",
    salt=bytes(SALT_BYTES),
)


class Place:
    """A store with one approval in it, and receipts that are numbered."""

    def __init__(self, approval: Approval, max_pending: int = 9):
        self.store = MemoryStore()
        numbers = itertools.count(1)
        self.new_id = lambda: f"id-{next(numbers)}"
        self.put(queue.opened(approval, max_pending))

    def put(self, apply: Apply | None) -> Sequence[Draft]:
        assert apply is not None
        with self.store.transaction() as transaction:
            return apply(transaction)

    def now(self, approval_id: str = "a-1") -> Approval:
        with self.store.reader() as reader:
            return queue.load(reader, approval_id)

    def answer(self, seen: Approval | None = None, **members: Any) -> Sequence[Draft]:
        known: dict[str, Any] = {"by": "ann", "approves": True, "now": OPENED, "quorum": 1, "hourly_limit": None}
        unit = queue.answered(seen or self.now(), Ballot(**(known | members)), self.new_id)
        return self.put(unit.apply)

    def pending(self, principal: str = "bot-key") -> bytes | None:
        with self.store.reader() as reader:
            document = reader.document("approvals_pending", principal)
        return None if document is None else document.body


def said(drafts: Sequence[Draft]) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """Kind, action, who brought it about, and who stands behind it."""
    return [
        (one.members["kind"], one.members["action"], one.members["principal"], tuple(one.members.get("approvers", ())))
        for one in drafts
    ]


def test_an_opened_approval_waits_and_counts() -> None:
    place = Place(held(), max_pending=1)
    assert (place.now().state, place.pending()) == ("pending", b"1")
    with pytest.raises(TooManyPending):
        place.put(queue.opened(held(id="a-2"), 1))
    assert list(place.put(queue.opened(held(id="a-3", principal="other"), 1))) == []


def test_an_unknown_approval_is_404() -> None:
    place = Place(held())
    with pytest.raises(InvalidCall) as caught:
        place.now("a-9")
    assert (caught.value.code, caught.value.status) == ("not_found", 404)
    with place.store.reader() as reader:
        assert queue.find(reader, "a-9") is None


def test_a_yes_is_stored_with_its_receipt() -> None:
    place = Place(held())
    drafts = place.answer(reason="fine", hourly_limit=1)
    assert said(drafts) == [("approval", "approved", "ann", ("ann",))]
    members = drafts[0].members
    assert (members["receipt_id"], members["parent"], members["approval_id"]) == ("id-1", "d-1", "a-1")
    done = place.now()
    assert (done.state, done.resolved_by, done.reason, done.receipt_id, done.version) == (
        "approved", "ann", "fine", "id-1", 2,
    )  # fmt: skip
    assert place.pending() == b"0"


def test_a_vote_leaves_it_waiting() -> None:
    place = Place(held())
    assert said(place.answer(quorum=2)) == [("approval", "voted", "ann", ("ann",))]
    assert (place.now().state, place.pending(), place.now().version) == ("pending", b"1", 2)
    assert said(place.answer(quorum=2, by="ben")) == [("approval", "approved", "ben", ("ann", "ben"))]
    assert (place.pending(), place.now().version) == (b"0", 3)


def test_a_no_is_stored_and_counts_no_answer() -> None:
    place = Place(held())
    assert said(place.answer(approves=False, reason="no", hourly_limit=1)) == [("approval", "denied", "ann", ("ann",))]
    done = place.now()
    assert (done.state, done.reason, done.receipt_id, place.pending()) == ("denied", "no", "id-1", b"0")
    with place.store.reader() as reader:
        assert reader.document("approver_answers", "ann") is None


def test_what_was_shown_must_be_what_is_stored() -> None:
    place = Place(held())
    with pytest.raises(InvalidCall) as caught:
        place.answer(held(call_digest="sha-256:other"))
    assert (caught.value.code, caught.value.status, caught.value.hint) == ("conflict", 409, "load it again")
    assert (place.now().state, place.now().votes) == ("pending", ())


def test_what_is_not_pending_is_409_whatever_was_shown() -> None:
    place = Place(held())
    place.answer()
    with pytest.raises(InvalidCall) as caught:
        place.answer(held(call_digest="sha-256:other"), by="ben")
    assert caught.value.code == "not_pending"


def test_a_person_approves_so_many_in_an_hour() -> None:
    place = Place(held())
    place.put(queue.opened(held(id="a-2"), 9))
    place.put(queue.opened(held(id="a-3"), 9))
    place.answer(hourly_limit=1)
    with pytest.raises(InvalidCall) as caught:
        place.answer(place.now("a-2"), hourly_limit=1, now=OPENED + MINUTE)
    assert (caught.value.code, caught.value.status) == ("approver_limit", 429)
    assert place.now("a-2").state == "pending"
    place.answer(place.now("a-2"), hourly_limit=2, now=OPENED + MINUTE)
    place.answer(place.now("a-3"), now=OPENED + MINUTE)  # without a limit nothing is counted
    with place.store.reader() as reader:
        document = reader.document("approver_answers", "ann")
    assert document is not None and document.body.count(b",") == 1


def test_narrowing_is_a_receipt_of_its_own() -> None:
    place = Place(held(quorum=2))
    place.answer()
    drafts = place.answer(by="ben", narrowed=NARROWED)
    assert said(drafts) == [("approval", "narrowed", "ben", ("ben",)), ("approval", "voted", "ben", ("ben",))]
    first = drafts[0]
    assert (first.members["receipt_id"], first.members["call_commitment"]) == ("id-2", "call")
    assert (first.members["payload_commitment"], first.payload, first.salt) == ("payload", b"{}", bytes(SALT_BYTES))
    now = place.now()
    assert (now.call_digest, now.identities, now.narrowed_by, now.narrowed_at) == (
        "sha-256:less", "files", "id-2", OPENED,
    )  # fmt: skip
    assert (now.voters, now.version, now.receipt_id, place.pending()) == (("ben",), 3, "id-3", b"1")


def test_everybodys_yes_for_the_session_opens_a_grant() -> None:
    place = Place(held())
    drafts = place.answer(scope="session", grant_seconds=60)
    assert said(drafts) == [("approval", "approved", "ann", ("ann",)), ("grant", "open", "ann", ("ann",))]
    assert (drafts[1].members["grant_id"], drafts[1].members["receipt_id"]) == ("id-2", "id-3")
    assert place.now().grant == "id-2"
    with place.store.reader() as reader:
        grant = grants.find(reader, "id-2")
    assert grant is not None
    assert (grant.approval_id, grant.expires_at, grant.approvers) == ("a-1", OPENED + MINUTE, ("ann",))


@pytest.mark.parametrize(
    "members",
    [
        {"grant_seconds": 0, "scope": "session"},
        {"grant_seconds": 60},
        {"scope": "session"},
        {"grant_seconds": 60, "scope": "session", "quorum": 2},
    ],
)
def test_else_there_is_no_grant(members: dict[str, Any]) -> None:
    place = Place(held())
    assert len(place.answer(**members)) == 1
    assert place.now().grant is None


def test_a_transition_is_a_compare_and_set() -> None:
    place = Place(held())
    seen = place.now()
    place.answer(quorum=2)
    for approval in (seen, held(id="a-9")):
        unit = queue.transition(approval, "expired", receipt_id="r-1", principal="gate")
        with pytest.raises(StoreConflict):
            place.put(unit.apply)
    assert (place.now().state, place.pending()) == ("pending", b"1")
    unit = queue.transition(place.now(), "expired", receipt_id="r-1", principal="gate", epoch=7)
    assert unit.epoch == 7
    drafts = place.put(unit.apply)
    assert said(drafts) == [("approval", "expired", "gate", ())]
    assert "permit_id" not in drafts[0].members and "grant_id" not in drafts[0].members
    assert (place.now().state, place.now().receipt_id, place.pending()) == ("expired", "r-1", b"0")


def test_a_redemption_names_its_permit_and_its_grant() -> None:
    place = Place(held())
    place.put(queue.opened(held(id="a-2"), 9))
    place.answer(scope="session", grant_seconds=60)
    unit = queue.transition(place.now(), "redeemed", receipt_id="r-1", principal="bot-key", permit_id="p-1")
    drafts = place.put(unit.apply)
    assert said(drafts) == [("redemption", "redeemed", "bot-key", ())]
    assert (drafts[0].members["permit_id"], drafts[0].members["grant_id"]) == ("p-1", "id-2")
    assert place.pending() == b"1"  # the other one still waits


def test_only_a_redemption_names_a_grant() -> None:
    place = Place(held())
    place.answer(scope="session", grant_seconds=60)
    unit = queue.transition(place.now(), "cancelled", receipt_id="r-1", principal="gate")
    assert "grant_id" not in place.put(unit.apply)[0].members


def test_a_turn_is_passed_on_with_a_receipt() -> None:
    place = Place(held(turn_micros=MINUTE))
    drafts = place.put(queue.passed_on(place.now(), now=OPENED + MINUTE, receipt_id="r-1").apply)
    assert said(drafts) == [("approval", "passed_on", "gate", ())]
    assert (place.now().turn, place.now().receipt_id, drafts[0].members["receipt_id"]) == (1, "r-1", "r-1")


def test_fatigue_is_an_alarm() -> None:
    place = Place(held())
    drafts = place.put(queue.fatigued("a-1", person="ann", receipt_id="r-1").apply)
    assert said(drafts) == [("alarm", "approver_fatigue", "gate", ("ann",))]
    assert (place.now().fatigued, drafts[0].members["receipt_id"]) == (("ann",), "r-1")


def granted(place: Place) -> Grant:
    place.answer(scope="session", grant_seconds=60)
    with place.store.reader() as reader:
        grant = grants.find(reader, "id-2")
    assert grant is not None
    return grant


def test_a_grant_answers_for_the_next_call_all_at_once() -> None:
    place = Place(held())
    grant = granted(place)
    apply = queue.redeemed_by_grant(held(id="a-2"), grant, permit_id="p-1", new_id=place.new_id)
    drafts = place.put(apply)
    assert said(drafts) == [("approval", "approved", "gate", ("ann",)), ("redemption", "redeemed", "bot-key", ())]
    yes, used = drafts[0].members, drafts[1].members
    assert (yes["receipt_id"], yes["grant_id"], used["receipt_id"]) == ("id-4", "id-2", "id-5")
    assert (used["grant_id"], used["permit_id"]) == ("id-2", "p-1")
    now = place.now("a-2")
    assert (now.state, now.grant, now.version, now.receipt_id) == ("redeemed", "id-2", 1, "id-5")
    assert place.pending() == b"0"


def test_a_grant_that_changed_answers_for_nothing() -> None:
    place = Place(held())
    grant = granted(place)
    drafts = place.put(queue.revoked("id-2", by="ben", receipt_id="r-1").apply)
    assert said(drafts) == [("grant", "revoke", "ben", ("ann",))]
    assert drafts[0].members["receipt_id"] == "r-1"
    with pytest.raises(StoreConflict):
        place.put(queue.redeemed_by_grant(held(id="a-2"), grant, permit_id="p-1", new_id=place.new_id))
    with pytest.raises(InvalidCall) as caught:
        place.now("a-2")
    assert caught.value.status == 404


def test_what_is_stored_reads_back_as_it_was() -> None:
    approval = held(votes=(Vote(by="ann", at=OPENED, scope="session"),), effects=("write",), server=None)
    document = to_document(approval)
    assert (document.collection, document.key, document.state, document.version) == ("approvals", "a-1", "pending", 1)
    place = Place(approval)
    assert place.now() == approval
    assert granted_by(approval, grant_id="g", seconds=1, now=OPENED).expires_at == OPENED + 1_000_000
