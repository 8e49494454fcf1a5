"""Interactions of `google-genai`: an answer that hands out a call is refused, whole and streamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from google import genai

from aegis.errors import UnhookedFramework
from frameworks.drivers.google_genai import FRAMEWORK
from frameworks.model import hooked
from support.raw_server import Received, answer, serving
from support.worlds import scripted

CALL = {"type": "function_call", "id": "call_1", "name": "send_email", "arguments": {"to": "a@example.com"}}
TEXT = {"type": "model_output", "content": [{"type": "text", "text": "done"}]}


def client(url: str) -> Any:
    """A client, which closes its connections once nobody holds it."""
    return genai.Client(api_key="k", http_options={"base_url": url})


def whole(url: str) -> None:
    asking = client(url)
    asking.interactions.create(model="m", input="go")


def whole_async(url: str) -> None:
    async def go() -> None:
        asking = client(url)
        await asking.aio.interactions.create(model="m", input="go")

    asyncio.run(go())


def streamed(url: str) -> None:
    asking = client(url)
    list(asking.interactions.create(model="m", input="go", stream=True))


def fetched(url: str) -> None:
    asking = client(url)
    asking.interactions.get(id="i1")


def said(step: dict[str, Any]) -> Callable[[Received], bytes]:
    """A provider whose interactions are of one step."""

    def respond(request: Received) -> bytes:
        if b'"stream":true' not in request.body.replace(b" ", b""):
            return answer(200, {"id": "i1", "status": "completed", "model": "m", "steps": [step]})
        event = json.dumps({"event_type": "step.start", "index": 0, "step": step})
        whole = answer(200, f"data: {event}\n\n".encode())
        return whole.replace(b"application/json", b"text/event-stream")

    return respond


@pytest.mark.parametrize("ask", [whole, whole_async, streamed, fetched])
def test_an_interaction_that_hands_out_a_call_is_refused(ask: Callable[[str], None]) -> None:
    with serving(said(CALL)) as server, hooked(FRAMEWORK, scripted()):
        with pytest.raises(UnhookedFramework):
            ask(server.url)
        assert server.received


def test_an_interaction_without_a_call_passes() -> None:
    with serving(said(TEXT)) as server, hooked(FRAMEWORK, scripted()):
        whole(server.url)
        streamed(server.url)
