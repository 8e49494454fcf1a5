"""Streams put together by the accumulators of the real SDKs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from openai import omit
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from aegis.wire.model import Wire, WireEvent

_RESPONSES: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_ANTHROPIC: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def accumulated(name: str, events: Sequence[WireEvent]) -> Wire:
    """The whole answer that the SDK's own accumulator makes of a stream; every event must be a valid one."""
    wires = [json.loads(event.data) for event in events if event.data and not event.data.startswith("[DONE]")]
    if name == "chat":
        state = ChatCompletionStreamState()
        for wire in wires:
            state.handle_chunk(ChatCompletionChunk.model_validate(wire))
        return state.get_final_completion().model_dump(mode="json", exclude_none=True)
    if name == "responses":
        responses: ResponseStreamState[Any] = ResponseStreamState(input_tools=[], text_format=omit)
        numbers = [wire["sequence_number"] for wire in wires]
        assert numbers == sorted(set(numbers)), "sequence numbers must rise"
        for wire in wires:
            event = _RESPONSES.validate_python(_valid_response_event(wire))
            if "output" not in wire.get("response", {"output": []}):
                event.response.output = None
            responses.handle_event(event)
        assert responses._completed_response is not None
        return responses._completed_response.model_dump(mode="json", exclude_none=True, warnings=False)
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for wire in wires:
        if wire["type"] == "ping":
            continue
        snapshot = accumulate_event(
            event=_ANTHROPIC.validate_python(_valid_anthropic_event(wire)), current_snapshot=snapshot, json_bufs=buffers
        )
    message: Wire = Message.model_validate(snapshot.to_dict()).model_dump(mode="json", exclude_none=True)
    return message


def _valid_response_event(wire: Wire) -> Wire:
    """The event with what a real response has besides, so that it can be validated."""
    if "response" not in wire:
        return wire
    rest = {"created_at": 1, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    # Servers leave the output out, though the type says that it is there.
    return {**wire, "response": {**rest, "output": [], **wire["response"]}}


def _valid_anthropic_event(wire: Wire) -> Wire:
    if wire["type"] == "message_delta":
        return {**wire, "delta": {"container": None, "stop_details": None, **wire["delta"]}}
    return wire
