"""A held call waits for its approval, is asked for again under the same id, and never allows by waiting."""

from __future__ import annotations

from typing import Any

import pytest

from aegis.core.outcome import Outcome, Reason
from aegis.errors import InvalidCall
from aegis.sdk.client import Client
from aegis.sdk.client.hold import PATIENCE, PAUSE, Hold
from aegis.sdk.client.http1 import HttpAnswer
from support.asking import CALL, Mode, both_modes, decide, wait
from support.decisions import wire_decision
from support.raw_server import Received, answer, serving


class Gateway:
    """Holds a call until its approval was asked for `polls` times; then decides it as `resolved`."""

    def __init__(self, resolved: dict[str, Any], polls: int = 1):
        self.resolved = resolved
        self.left = polls
        self.calls: list[dict[str, Any]] = []
        self.targets: list[str] = []

    def __call__(self, request: Received) -> bytes:
        if request.method == "GET":
            self.targets.append(request.target)
            self.left -= 1
            state = "approved" if self.left <= 0 else "pending"
            return answer(200, {"id": "ap-1", "state": state})
        self.calls.append(request.json)
        if self.left > 0:
            return answer(202, wire_decision(request.json, "require_approval"))
        return answer(200, wire_decision(request.json, **self.resolved))


@both_modes
def test_an_approved_call_is_asked_for_again_under_the_same_id(mode: Mode) -> None:
    gateway = Gateway({"permit": "jws"})
    with serving(gateway) as server:
        client = Client(server.url)
        held = decide(client, CALL, mode)
        final = wait(client, CALL, held, 5, mode)
    assert final.outcome is Outcome.ALLOW
    assert final.permit == "jws"
    assert gateway.targets[0].startswith("/v1/approvals/ap-1?wait=")
    first, again = gateway.calls
    assert first == again


@both_modes
def test_a_denied_call_stays_refused(mode: Mode) -> None:
    with serving(Gateway({"outcome": "block", "reason": "approval_denied"})) as server:
        client = Client(server.url)
        final = wait(client, CALL, decide(client, CALL, mode), 5, mode)
    assert (final.outcome, final.reason) == (Outcome.BLOCK, Reason.APPROVAL_DENIED)


@both_modes
def test_narrowed_arguments_come_back_as_sanitised(mode: Mode) -> None:
    with serving(Gateway({"outcome": "sanitize", "arguments": {"to": "b@example.com"}})) as server:
        client = Client(server.url)
        final = wait(client, CALL, decide(client, CALL, mode), 5, mode)
    assert final.arguments == {"to": "b@example.com"}


@both_modes
def test_waiting_ends_without_a_permission(mode: Mode) -> None:
    with serving(Gateway({}, polls=1_000)) as server:
        client = Client(server.url)
        final = wait(client, CALL, decide(client, CALL, mode), 0.2, mode)
    assert not final.allowed


@both_modes
def test_an_approval_of_somebody_else_is_misuse(mode: Mode) -> None:
    def gateway(request: Received) -> bytes:
        if request.method == "GET":
            return answer(403, {"error": {"code": "forbidden", "message": "not yours"}})
        return answer(202, wire_decision(request.json, "require_approval"))

    with serving(gateway) as server:
        client = Client(server.url)
        held = decide(client, CALL, mode)
        with pytest.raises(InvalidCall):
            wait(client, CALL, held, 5, mode)


@both_modes
def test_a_decision_that_is_not_held_is_given_back(mode: Mode) -> None:
    with serving(lambda request: answer(200, wire_decision(request.json))) as server:
        client = Client(server.url)
        decided = decide(client, CALL, mode)
        assert wait(client, CALL, decided, None, mode) is decided
    assert len(server.received) == 1


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def holding(timeout: float | None = None) -> tuple[Hold, Clock]:
    with serving(lambda request: answer(202, wire_decision(request.json, "require_approval"))) as server:
        held = Client(server.url).decide(CALL)
    clock = Clock()
    return Hold(call=CALL, decision=held, timeout=timeout, exchange_timeout=5, clock=clock), clock


def heard(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> HttpAnswer:
    return HttpAnswer(status=status, headers=headers or {}, body=bytearray(body))


PENDING = b'{"id":"ap-1","state":"pending"}'


def test_a_gateway_that_does_not_hold_requests_is_asked_every_two_seconds() -> None:
    hold, clock = holding()
    step = hold.next()
    assert step is not None
    assert step.seconds == 0
    hold.answered(heard(200, PENDING))
    step = hold.next()
    assert step is not None
    assert step.seconds == PAUSE
    clock.now += 40
    hold.answered(heard(200, PENDING))
    step = hold.next()
    assert step is not None
    assert step.seconds == 0


def test_a_gateway_that_stays_away_refuses_the_call() -> None:
    hold, clock = holding()
    hold.next()
    hold.unanswered()
    for status in (503, 200):
        assert hold.next() is not None
        hold.answered(heard(status))
    clock.now += PATIENCE + 1
    assert hold.next() is None
    assert (hold.decision.outcome, hold.decision.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)


def test_a_word_about_another_approval_counts_as_no_word() -> None:
    hold, clock = holding()
    hold.next()
    hold.answered(heard(200, b'{"id":"ap-2","state":"approved"}'))
    step = hold.next()
    assert step is not None
    assert step.target is not None
    clock.now += PATIENCE + 1
    assert hold.next() is None


def test_a_rate_limited_question_waits_as_long_as_it_is_told() -> None:
    hold, _ = holding()
    hold.next()
    hold.answered(heard(429, headers={"retry-after": "9"}))
    step = hold.next()
    assert step is not None
    assert step.seconds == 9


def test_the_time_that_a_caller_gives_is_kept() -> None:
    hold, clock = holding(timeout=10)
    step = hold.next()
    assert step is not None
    assert step.target == "/v1/approvals/ap-1?wait=10"
    clock.now += 9
    hold.answered(heard(200, PENDING))
    step = hold.next()
    assert step is not None
    clock.now += 2
    hold.answered(heard(200, PENDING))
    assert hold.next() is None
    assert not hold.decision.allowed


def test_a_resolved_approval_without_a_decision_is_asked_about_again() -> None:
    hold, _ = holding()
    hold.next()
    hold.answered(heard(200, b'{"id":"ap-1","state":"approved"}'))
    step = hold.next()
    assert step is not None
    assert step.target is None
    with serving(lambda _: answer(503, {})) as server:
        hold.decided(Client(server.url).decide(hold.call))
    step = hold.next()
    assert step is not None
    assert step.target is not None
    assert step.seconds == PAUSE
