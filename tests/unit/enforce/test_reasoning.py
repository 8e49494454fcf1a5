"""Hooked clients bring the reasoning of an answer to the decisions on its calls, wherever they are decided."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.runner import Execution, RunnerGate
from aegis.enforce.turn import StreamedTurn
from aegis.testing.adapters import ScriptedDecider
from aegis.wire.anthropic import AnthropicMessages

THINKING = {"type": "thinking", "thinking": "look first", "signature": "s1"}
USE = {"type": "tool_use", "id": "toolu_0123456789abcdef", "name": "read_file", "input": {"path": "a"}}
ANSWER = {"id": "msg_1", "type": "message", "role": "assistant", "content": [THINKING, USE], "stop_reason": "tool_use"}
EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "message_start", "message": {**ANSWER, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {**THINKING, "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "look first"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s1"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {**USE, "input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"path": "a"}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    {"type": "message_stop"},
)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("deferred", [False, True])
def test_the_reasoning_of_an_answer_comes_with_its_calls(streamed: bool, deferred: bool) -> None:
    decider, memory = ScriptedDecider(), Memory()
    enforcer = Enforcer(decider)
    turn = StreamedTurn(enforcer, memory, AnthropicMessages(), deferred=frozenset({"read_file"} if deferred else ()))
    if streamed:
        source = iter([f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in EVENTS])
        assert b"look first" in b"".join(turn.chunks(source))
    else:
        enforcer.run(turn.body(json.dumps(ANSWER).encode()))
    if deferred:  # a runner of the SDK executes it, and asks then
        assert not decider.decided
        execution = Execution(tool="read_file", call_id=str(USE["id"]), answer_id="m", arguments=lambda: {"path": "a"})
        enforcer.run(RunnerGate(enforcer, memory).before(execution))
    (call,) = decider.decided
    assert call.reasoning is not None
    assert (call.reasoning.text, call.reasoning.signed) == ("look first", 1)
