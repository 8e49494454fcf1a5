"""From bodies to calls and from decisions to statuses, as pure functions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.core.decision import ApprovalRef, Decision, ReceiptRef, ResultDecision
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.errors import ConfigError, InvalidCall, Problem, StoreConflict, StoreCorrupt, StoreUnavailable
from aegis.gate.view import payload_view
from aegis.server.http import encode, encode_cursor, index_of, page, place_of, refusal_of, request_id_of
from aegis.server.wire import call_of, result_status, status_of

RECEIPT = ReceiptRef(id="r", index=1, leaf_hash="ab")


def decision(outcome: Outcome, reason: Reason = Reason.NONE, **changes: Any) -> Decision:
    members: dict[str, Any] = {"receipt": RECEIPT, **changes}
    return Decision(
        outcome=outcome,
        verdict=Verdict.COMPLIANT,
        risk=Risk.LOW,
        reason=reason,
        message="",
        decision_id="d",
        call_id="c",
        request_digest="q",
        call_digest="q",
        policy_digest="p",
        salt="s",
        **members,
    )


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (decision(Outcome.ALLOW), 200),
        (decision(Outcome.SANITIZE), 200),
        (decision(Outcome.BLOCK, Reason.ATTACK_DETECTED), 200),
        (decision(Outcome.BLOCK, Reason.UNAVAILABLE), 200),  # a guard failed, and that is on record
        (decision(Outcome.BLOCK, Reason.UNAVAILABLE, receipt=None), 503),
        (decision(Outcome.BLOCK, Reason.RATE_LIMITED, retry_after=7), 429),
        (decision(Outcome.BLOCK, Reason.CONFLICT), 409),
        (decision(Outcome.REQUIRE_APPROVAL, approval=ApprovalRef(id="a", expires_at="")), 202),
    ],
)
def test_every_decision_has_its_status(made: Decision, status: int) -> None:
    assert status_of(made)[0] == status


def test_the_headers_that_a_status_demands() -> None:
    assert status_of(decision(Outcome.BLOCK, Reason.RATE_LIMITED, retry_after=7))[1] == ((b"retry-after", b"7"),)
    assert status_of(decision(Outcome.BLOCK, Reason.RATE_LIMITED, retry_after=0))[1] == ((b"retry-after", b"1"),)
    held = decision(Outcome.REQUIRE_APPROVAL, approval=ApprovalRef(id="a", expires_at=""))
    assert status_of(held)[1] == ((b"location", b"/v1/approvals/a"),)


def test_a_result_without_a_record_is_503() -> None:
    made = ResultDecision(outcome=Outcome.ALLOW, verdict=Verdict.COMPLIANT, reason=Reason.NONE, message="")
    assert result_status(made)[0] == 503


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert call_of({"tool": "t", "arguments": {}, "turn": 3.0}).turn == 3


@given(
    value=st.recursive(
        st.none() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
    )
)
def test_only_calls_are_calls(value: Any) -> None:
    if isinstance(value, dict) and {"tool", "arguments"} <= value.keys():
        return
    with pytest.raises(InvalidCall):
        call_of(value)


@given(place=st.text(min_size=1, max_size=300).filter(lambda text: text.isprintable()))
def test_a_cursor_names_its_place(place: str) -> None:
    assert place_of(encode_cursor(place)) == place


@given(index=st.integers(0, 2**53 - 1))
def test_a_cursor_of_an_index_names_it(index: int) -> None:
    assert index_of(page([], index)["next"]) == index


@given(cursor=st.text(max_size=40))
def test_no_cursor_is_more_than_refused(cursor: str) -> None:
    try:
        index_of(cursor)
    except InvalidCall as error:
        assert error.status == 422


def test_what_is_found_by_trying_is_shown_with_the_arguments_or_not_at_all() -> None:
    payload = {
        "tool": "pay",
        "server": None,
        "arguments": {"amount": 7, "to": "somebody@example.com", "note": "no"},
        "request_digest": "sha-256:1",
        "call_digest": "sha-256:2",
        "epoch": 3,
        "claimed": {"task": "pay the invoice of somebody"},
    }
    masked = payload_view(payload, reveal=False)
    assert masked.keys() == {"tool", "server", "arguments", "claimed"}
    assert masked["arguments"] == {"amount": "****", "to": "so****om", "note": "****"}
    assert masked["claimed"]["task"] == "pa****dy"
    revealed = payload_view(payload, reveal=True)
    assert revealed["arguments"] == payload["arguments"]
    assert revealed["request_digest"] == "sha-256:1"


def test_every_exception_has_a_refusal_without_detail() -> None:
    problem = ConfigError((Problem(message="`risk` is not a tier", line=3),))
    cases: list[tuple[Exception, int]] = [
        (InvalidCall("no", status=404), 404),
        (StoreUnavailable("secret"), 503),
        (StoreConflict("secret"), 503),
        (StoreCorrupt("secret"), 503),
        (problem, 422),
        (RuntimeError("secret"), 500),
        (KeyError("secret"), 500),
    ]
    for error, status in cases:
        refusal = refusal_of(error)
        assert refusal.status == status
        assert "secret" not in refusal.message + refusal.hint


def test_integers_of_any_size_are_written_with_their_digits() -> None:
    assert encode({"n": 2**70, "é": 1.5}) == b'{"n":1180591620717411303424,"\xc3\xa9":1.5}'


@given(given_id=st.binary(max_size=80))
def test_a_request_id_is_plain_and_short(given_id: bytes) -> None:
    chosen = request_id_of(given_id)
    assert 0 < len(chosen) <= 64
    assert set(chosen) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
