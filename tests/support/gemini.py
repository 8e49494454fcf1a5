"""A scripted provider that speaks Gemini's wire protocol on loopback, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from aegis.cli.demo.provider import Call, Turn
from frameworks.model import Agent
from support.raw_server import Received, answer, serving


class GeminiAgent(Agent):
    """A world whose provider speaks Gemini."""

    def result_of(self, call: Call) -> Any:
        found: list[Any] = []
        for asked in self.asked:
            for content in asked.body["contents"]:
                for part in content.get("parts", ()):
                    response = part.get("functionResponse")
                    if response and (response.get("id") == call.id or response.get("name") == call.tool):
                        found.append(response["response"])
        (value,) = list({json.dumps(one): one for one in found}.values())
        return value.get("result", value.get("error"))


class _Provider:
    """What the world of a test asks of its provider."""

    world = GeminiAgent

    def __init__(self, url: str, asked: list[Any]) -> None:
        self.url = url
        self.asked = asked


class _Asked:
    def __init__(self, request: Received) -> None:
        self.body = request.json
        self.headers = request.headers
        self.format = "gemini"


@contextmanager
def gemini(turns: Iterable[Turn]) -> Iterator[_Provider]:
    """A provider that says `turns`, one a request, and `done` after the last."""
    script = list(turns)
    asked: list[Any] = []

    def respond(request: Received) -> bytes:
        asked.append(_Asked(request))
        turn = script.pop(0) if script else Turn(text="done")
        parts: list[Any] = [{"text": turn.text}] if turn.text else []
        parts += [{"functionCall": {"id": one.id, "name": one.tool, "args": one.arguments}} for one in turn.calls]
        if "streamGenerateContent" not in request.target:
            return answer(200, _whole(parts, len(asked)))
        chunks = [_whole([part], len(asked)) for part in parts]
        return answer(200, "".join(f"data: {json.dumps(one)}\r\n\r\n" for one in chunks).encode())

    with serving(respond) as server:
        yield _Provider(server.url, asked)


def _whole(parts: list[Any], number: int) -> Any:
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "m",
        "responseId": f"r{number}",
    }
