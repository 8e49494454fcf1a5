"""Servers that speak as OpenAI does, nearly: what of their streams is read otherwise, and still call by call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aegis.wire.model import Ruling, WireEvent
from aegis.wire.openai_chat import OpenAIChat


def chunk(*calls: dict[str, Any], finish: str | None = None) -> WireEvent:
    delta = {"role": "assistant", "content": "", "tool_calls": list(calls)} if calls else {}
    return WireEvent(data=json.dumps({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))


def wire_call(call_id: str, tool: str, arguments: str, **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": tool, "arguments": arguments}, **more}


READ, MAIL = '{"path":"notes.txt"}', '{"to":"a@example.com"}'

STREAMS = {
    # Ollama: every call whole in a chunk of its own, all with index 0; the reason to end is `stop` or `tool_calls`.
    "ollama": [
        chunk(wire_call("call_a", "read_file", READ, index=0)),
        chunk(wire_call("call_b", "send_email", MAIL, index=0)),
        chunk(finish="tool_calls"),
    ],
    "ollama, all in one chunk": [
        chunk(wire_call("call_a", "read_file", READ, index=0), wire_call("call_b", "send_email", MAIL, index=0)),
        chunk(finish="stop"),
    ],
    # Mistral: the calls and the end in one chunk.
    "mistral": [
        chunk(
            wire_call("call_a", "read_file", READ, index=0),
            wire_call("call_b", "send_email", MAIL, index=1),
            finish="tool_calls",
        ),
    ],
    # vLLM: a head with the name, then the arguments in pieces that repeat neither id nor name.
    "vllm": [
        chunk(wire_call("call_a", "read_file", "", index=0)),
        chunk({"index": 0, "function": {"arguments": READ[:7]}}),
        chunk({"index": 0, "function": {"arguments": READ[7:]}}),
        chunk(wire_call("call_b", "send_email", "", index=1)),
        chunk({"index": 1, "function": {"arguments": MAIL}}),
        chunk(finish="tool_calls"),
    ],
    "one index, in pieces": [
        chunk(wire_call("call_a", "read_file", READ[:7], index=0)),
        chunk({"index": 0, "function": {"arguments": READ[7:]}}),
        chunk(wire_call("call_b", "send_email", "", index=0)),
        chunk({"index": 0, "function": {"arguments": MAIL}}),
        chunk(finish="tool_calls"),
    ],
    "without an index": [
        chunk(wire_call("call_a", "read_file", READ)),
        chunk(wire_call("call_b", "send_email", MAIL)),
        chunk(finish="tool_calls"),
    ],
}


@pytest.mark.parametrize("name", STREAMS)
def test_the_calls_of_a_compatible_server_stay_apart(name: str) -> None:
    stream = OpenAIChat().stream(structured=False)
    *first, last = STREAMS[name]
    for event in first:
        step = stream.feed(event)
        assert step.calls == []
        assert all("read_file" not in one.data and "send_email" not in one.data for one in step.events)
    calls = stream.feed(last).calls
    assert [(one.call_id, one.tool, one.arguments) for one in calls] == [
        ("call_a", "read_file", json.loads(READ)),
        ("call_b", "send_email", json.loads(MAIL)),
    ]
    refused = {calls[0].key: Ruling(allowed=True), calls[1].key: Ruling(allowed=False, message="not so")}
    passed = "".join(event.data for event in stream.settle(refused))
    assert "call_a" in passed
    assert "call_b" not in passed
