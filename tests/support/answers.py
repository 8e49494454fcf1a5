"""Answers of the three providers with the same content, whole and as streams, for tests of the dialects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aegis.wire.anthropic import AnthropicMessages
from aegis.wire.model import Dialect, Proposed, Removal, Ruling, Wire, WireEvent
from aegis.wire.openai_chat import OpenAIChat
from aegis.wire.openai_responses import OpenAIResponses

DIALECTS: dict[str, Dialect] = {
    "chat": OpenAIChat(),
    "responses": OpenAIResponses(),
    "anthropic": AnthropicMessages(),
}
Call = tuple[str, str, str]  # id, tool, arguments as the model spelled them

ALLOWED = Ruling(allowed=True)


def refused(message: str = "not permitted") -> Ruling:
    return Ruling(allowed=False, message=message)


def whole(name: str, text: str, calls: Sequence[Call]) -> Wire:
    """The answer that says `text` and proposes `calls`."""
    if name == "chat":
        wired = [{"id": i, "type": "function", "function": {"name": t, "arguments": a}} for i, t, a in calls]
        message = {"role": "assistant", "content": text or None, **({"tool_calls": wired} if wired else {})}
        reason = "tool_calls" if calls else "stop"
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        }
    if name == "responses":
        output: list[Wire] = [_message(text)] if text else []
        output += [
            {"id": f"fc_{i}", "type": "function_call", "call_id": i, "name": t, "arguments": a, "status": "completed"}
            for i, t, a in calls
        ]
        return {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": output}
    content: list[Wire] = [{"type": "text", "text": text}] if text else []
    content += [{"type": "tool_use", "id": i, "name": t, "input": _input(a)} for i, t, a in calls]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def events(name: str, text: str, calls: Sequence[Call]) -> list[WireEvent]:
    """The stream of the same answer; text and arguments come in small pieces."""
    if name == "chat":
        return _chat_events(text, calls)
    if name == "responses":
        return _responses_events(text, calls)
    return _anthropic_events(text, calls)


@dataclass
class Filtered:
    """What came out of a stream, and what was asked on the way."""

    events: list[WireEvent]
    asked: list[Proposed]
    removals: list[Removal]
    passed_before_asking: int


def filtered(
    name: str, stream: Sequence[WireEvent], rulings: dict[str, Ruling], *, structured: bool = False
) -> Filtered:
    """The stream after its filter; `rulings` are by provider's call id, and a call without one is allowed."""
    gate = DIALECTS[name].stream(structured=structured)
    out: list[WireEvent] = []
    asked: list[Proposed] = []
    before = -1
    for event in stream:
        step = gate.feed(event)
        out += step.events
        if step.calls:
            before = len(out) if before < 0 else before
            asked += step.calls
            out += gate.settle({call.key: rulings.get(call.call_id, ALLOWED) for call in step.calls})
    return Filtered(events=out, asked=asked, removals=list(gate.removals), passed_before_asking=before)


def settled(
    name: str, answer: Wire, rulings: dict[str, Ruling], *, structured: bool = False
) -> tuple[Wire, list[Removal]]:
    """The answer after ruling, by provider's call id; a call without a ruling is allowed."""
    dialect = DIALECTS[name]
    by_key = {call.key: rulings.get(call.call_id, ALLOWED) for call in dialect.calls(answer)}
    result = dialect.settle(answer, by_key, structured=structured)
    return result.answer, list(result.removals)


def said_and_called(name: str, answer: Wire) -> tuple[str, list[Call]]:
    """The text and the calls of a whole answer."""
    if name == "chat":
        message = answer["choices"][0]["message"]
        calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []]
        return (message.get("content") or "") + (message.get("refusal") or ""), calls
    if name == "responses":
        texts = [
            part.get("text", part.get("refusal"))
            for item in answer["output"]
            if item["type"] == "message"
            for part in item["content"]
        ]
        found = [item for item in answer["output"] if item["type"] == "function_call"]
        return "\n\n".join(texts), [(c["call_id"], c["name"], c["arguments"]) for c in found]
    texts = [block["text"] for block in answer["content"] if block["type"] == "text"]
    uses = [block for block in answer["content"] if block["type"] == "tool_use"]
    return "\n\n".join(texts), [(c["id"], c["name"], json.dumps(c["input"])) for c in uses]


def _input(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _message(text: str) -> Wire:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "msg_text", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def _pieces(text: str, size: int = 3) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _event(wire: Wire) -> WireEvent:
    return WireEvent(event=str(wire.get("type", "")), data=json.dumps(wire))


def _chat_events(text: str, calls: Sequence[Call]) -> list[WireEvent]:
    def chunk(delta: Wire, reason: str | None = None) -> WireEvent:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return WireEvent(data=json.dumps({**head, "choices": [choice]}))

    out = [chunk({"role": "assistant", "content": "" if text else None})]
    out += [chunk({"content": piece}) for piece in _pieces(text)]
    for index, (call_id, tool, arguments) in enumerate(calls):
        first = {"index": index, "id": call_id, "type": "function", "function": {"name": tool, "arguments": ""}}
        out.append(chunk({"tool_calls": [first]}))
        out += [chunk({"tool_calls": [{"index": index, "function": {"arguments": p}}]}) for p in _pieces(arguments)]
    return [*out, chunk({}, "tool_calls" if calls else "stop"), WireEvent(data="[DONE]")]


def _responses_events(text: str, calls: Sequence[Call]) -> list[WireEvent]:
    final = whole("responses", text, calls)
    wires: list[Wire] = [{"type": "response.created", "response": {**final, "status": "in_progress", "output": []}}]
    for index, item in enumerate(final["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            part = {"content_index": 0, **at}
            blank = {**item["content"][0], "text": ""}
            wires.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}})
            wires.append({"type": "response.content_part.added", **part, "part": blank})
            wires += [{"type": "response.output_text.delta", **part, "delta": p, "logprobs": []} for p in _pieces(text)]
            wires.append({"type": "response.output_text.done", **part, "text": text, "logprobs": []})
            wires.append({"type": "response.content_part.done", **part, "part": item["content"][0]})
        else:
            blank = {**item, "arguments": "", "status": "in_progress"}
            wires.append({"type": "response.output_item.added", "output_index": index, "item": blank})
            kind = "response.function_call_arguments"
            wires += [{"type": f"{kind}.delta", **at, "delta": piece} for piece in _pieces(item["arguments"])]
            wires.append({"type": f"{kind}.done", **at, "arguments": item["arguments"], "name": item["name"]})
        wires.append({"type": "response.output_item.done", "output_index": index, "item": item})
    wires.append({"type": "response.completed", "response": final})
    return [_event({**wire, "sequence_number": number}) for number, wire in enumerate(wires)]


def _anthropic_events(text: str, calls: Sequence[Call]) -> list[WireEvent]:
    final = whole("anthropic", text, calls)
    head = {**final, "content": [], "stop_reason": None}
    wires: list[Wire] = [{"type": "message_start", "message": head}, {"type": "ping"}]
    blocks: list[tuple[Wire, list[Wire]]] = []
    if text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(text)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for call_id, tool, arguments in calls:
        start: Wire = {"type": "tool_use", "id": call_id, "name": tool, "input": {}}
        blocks.append((start, [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(arguments)]))
    for index, (block, deltas) in enumerate(blocks):
        wires.append({"type": "content_block_start", "index": index, "content_block": block})
        wires += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        wires.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": final["stop_reason"], "stop_sequence": None}
    wires.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
    return [_event(wire) for wire in [*wires, {"type": "message_stop"}]]
