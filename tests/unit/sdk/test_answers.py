"""What a client makes of an answer: only one that is plainly about its own call can allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome, Reason
from aegis.errors import InvalidCall
from aegis.sdk.client import Client
from support.asking import CALL, Mode, both_modes, decide, said
from support.decisions import digest_of, wire_decision
from support.raw_server import serving


@both_modes
def test_an_allowed_call_is_allowed_and_carries_the_credential(mode: Mode) -> None:
    with serving(said(wire_decision)) as server:
        decision = decide(Client(server.url, "key-1", agent="bot"), CALL, mode)
    assert decision.allowed
    assert decision.receipt is not None
    (request,) = server.received
    assert (request.method, request.target) == ("POST", "/v1/decisions")
    assert request.headers["authorization"] == "Bearer key-1"
    assert request.json["agent"] == "bot"
    assert request.json["arguments"] == CALL.arguments
    assert request.json["call_id"] == decision.call_id


@both_modes
def test_sanitised_arguments_are_those_that_were_recorded(mode: Mode) -> None:
    with serving(said(lambda call: wire_decision(call, "sanitize", arguments={"to": "x"}))) as server:
        decision = decide(Client(server.url), CALL, mode)
    assert decision.outcome is Outcome.SANITIZE
    assert decision.arguments == {"to": "x"}


@both_modes
def test_a_held_call_names_its_approval(mode: Mode) -> None:
    with serving(said(lambda call: wire_decision(call, "require_approval"), 202)) as server:
        decision = decide(Client(server.url), CALL, mode)
    assert decision.outcome is Outcome.REQUIRE_APPROVAL
    assert not decision.allowed
    assert decision.approval is not None
    assert decision.approval.id == "ap-1"


OTHER = {"tool": "send_email", "arguments": {"to": "else"}, "call_id": "c"}

WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "unknown word": lambda call: wire_decision(call, decision="allowed"),
    "word of another case": lambda call: wire_decision(call, decision="Allow"),
    "decision is a list": lambda call: wire_decision(call, decision=["allow"]),
    "unknown reason": lambda call: wire_decision(call, reason="because"),
    "no digest": lambda call: wire_decision(call, request_digest=None),
    "digest of another call": lambda call: wire_decision(call, request_digest=digest_of(OTHER)),
    "call digest of another call": lambda call: wire_decision(call, call_digest=digest_of(OTHER)),
    "another call id": lambda call: wire_decision(call, call_id="call-of-somebody-else"),
    "allowed with arguments": lambda call: {**wire_decision(call), "arguments": {"to": "evil"}},
    "sanitised without arguments": lambda call: wire_decision(call, "sanitize"),
    "sanitised arguments of another digest": lambda call: wire_decision(
        call, "sanitize", arguments={"to": "x"}, call_digest=digest_of(call, {"to": "y"})
    ),
    "never recorded": lambda call: wire_decision(call, receipt=None),
    "receipt without a position": lambda call: wire_decision(call, receipt={"id": "r", "leaf_hash": "a"}),
    "held though 200": lambda call: wire_decision(call, "require_approval"),
    "not JSON": lambda call: b"allow",
    "a key twice": lambda call: b'{"decision":"block","decision":"allow"}',
    "nothing": lambda call: b"",
    "a list": lambda call: [wire_decision(call)],
    "an HTML page": lambda call: b"<html>it works</html>",
}


@both_modes
@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_is_not_plainly_about_this_call_is_a_refusal(name: str, mode: Mode) -> None:
    with serving(said(WRONG[name])) as server:
        decision = decide(Client(server.url), CALL, mode)
    assert (decision.outcome, decision.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)


@both_modes
@pytest.mark.parametrize("status", [201, 202, 204, 302, 307, 418, 409, 429, 500, 502, 503])
def test_an_allow_under_any_other_status_does_not_allow(status: int, mode: Mode) -> None:
    with serving(said(wire_decision, status, "location: http://127.0.0.1:9/")) as server:
        try:
            decision = decide(Client(server.url), CALL, mode)
        except InvalidCall as error:
            assert error.status == 418
        else:
            assert decision.outcome is Outcome.BLOCK
    assert len(server.received) == 1


@both_modes
@pytest.mark.parametrize(
    ("status", "reason"),
    [(409, Reason.CONFLICT), (429, Reason.RATE_LIMITED), (500, Reason.UNAVAILABLE), (503, Reason.UNAVAILABLE)],
)
def test_a_refusing_status_without_a_decision_is_still_a_block(status: int, reason: Reason, mode: Mode) -> None:
    with serving(said(lambda _: b"busy", status, "retry-after: 7")) as server:
        decision = decide(Client(server.url), CALL, mode)
    assert (decision.outcome, decision.reason, decision.retry_after) == (Outcome.BLOCK, reason, 7)


@both_modes
def test_the_decision_in_the_body_of_a_429_is_kept(mode: Mode) -> None:
    body = lambda call: wire_decision(call, "block", reason="rate_limited", message="slow down")  # noqa: E731
    with serving(said(body, 429, "retry-after: 3")) as server:
        decision = decide(Client(server.url), CALL, mode)
    assert (decision.reason, decision.message, decision.retry_after) == (Reason.RATE_LIMITED, "slow down", 3)
    assert decision.receipt is not None


@both_modes
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_misuse_is_raised_with_the_gateways_words(status: int, mode: Mode) -> None:
    error = {"error": {"code": "forbidden", "message": "the key has no right", "hint": "ask", "request_id": "1"}}
    with serving(said(lambda _: error, status)) as server, pytest.raises(InvalidCall) as raised:
        decide(Client(server.url), CALL, mode)
    assert (raised.value.code, raised.value.message, raised.value.hint) == ("forbidden", "the key has no right", "ask")
    assert raised.value.status == status


@both_modes
def test_a_call_that_is_not_json_is_misuse_before_anything_is_sent(mode: Mode) -> None:
    with serving(said(wire_decision)) as server:
        for call in (ToolCall(tool=""), ToolCall(tool="t", arguments={"x": float("nan")}), ToolCall(tool="t", turn=-1)):
            with pytest.raises(InvalidCall):
                decide(Client(server.url), call, mode)
    assert server.received == []
