"""A scripted provider that speaks Bedrock's Converse on loopback, whole and as an event stream."""

from __future__ import annotations

import binascii
import json
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aegis.cli.demo.provider import Call, Turn
from frameworks.model import Agent
from support.raw_server import Received, answer, serving


class BedrockAgent(Agent):
    """A world whose provider speaks Converse."""

    def result_of(self, call: Call) -> Any:
        for asked in self.asked:
            for message in asked.body["messages"]:
                for part in message["content"]:
                    result = part.get("toolResult")
                    if result and result["toolUseId"] == call.id:
                        return "".join(one.get("text") or json.dumps(one.get("json")) for one in result["content"])
        raise KeyError(call.id)


@dataclass(frozen=True)
class Request:
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True)
class Provider:
    url: str
    asked: list[Request]
    world: type[Agent] = BedrockAgent


@contextmanager
def bedrock(turns: Iterable[Turn]) -> Iterator[Provider]:
    """A provider that says `turns`, one a request, and `done` after the last."""
    script = list(turns)
    asked: list[Request] = []

    def respond(request: Received) -> bytes:
        asked.append(Request(request.json, request.headers))
        turn = script.pop(0) if script else Turn(text="done")
        if request.target.endswith("/converse"):
            return answer(200, _whole(turn))
        return answer(200, b"".join(_frame(kind, body) for kind, body in _events(turn)), _STREAM)

    with serving(respond) as server:
        yield Provider(server.url, asked)


_STREAM = "x-amzn-requestid: r1"


def _whole(turn: Turn) -> Any:
    content: list[Any] = [{"text": turn.text}] if turn.text else []
    content += [{"toolUse": {"toolUseId": one.id, "name": one.tool, "input": _object(one)}} for one in turn.calls]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use" if turn.calls else "end_turn",
        "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
        "metrics": {"latencyMs": 1},
    }


def _object(call: Call) -> Any:
    return call.arguments if isinstance(call.arguments, dict) else {}


def _events(turn: Turn) -> Iterator[tuple[str, Any]]:
    yield "messageStart", {"role": "assistant"}
    at = 0
    if turn.text:
        for piece in (turn.text[:2], turn.text[2:]):
            yield "contentBlockDelta", {"delta": {"text": piece}, "contentBlockIndex": at}
        yield "contentBlockStop", {"contentBlockIndex": at}
        at += 1
    for index, call in enumerate(turn.calls, at):
        use = {"toolUseId": call.id, "name": call.tool}
        yield "contentBlockStart", {"start": {"toolUse": use}, "contentBlockIndex": index}
        spelled = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        for piece in (spelled[:5], spelled[5:]):
            yield "contentBlockDelta", {"delta": {"toolUse": {"input": piece}}, "contentBlockIndex": index}
        yield "contentBlockStop", {"contentBlockIndex": index}
    yield "messageStop", {"stopReason": "tool_use" if turn.calls else "end_turn"}
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    yield "metadata", {"usage": usage, "metrics": {"latencyMs": 1}}


def _frame(kind: str, body: Any) -> bytes:
    """One message of `application/vnd.amazon.eventstream`: prelude, headers, payload, each with its checksum."""
    fields = ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event"))
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in fields
    )
    payload = json.dumps(body).encode()
    prelude = struct.pack(">II", len(headers) + len(payload) + 16, len(headers))
    start = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return start + struct.pack(">I", binascii.crc32(start))
