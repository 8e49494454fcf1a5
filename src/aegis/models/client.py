"""Asking a model for its next message: one request, one answer, whole or heard while it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from aegis.core.canonical import canonical
from aegis.core.strict_json import parse
from aegis.dialects.model import Event
from aegis.dialects.sse import SseReader
from aegis.egress import Egress, Request, Streamed
from aegis.errors import EgressError, ForeignAnswer, InvalidCall, KeyFileError, ModelFailed
from aegis.keys.reference import read_secret
from aegis.models.anthropic import Anthropic
from aegis.models.openai import OpenAI
from aegis.models.streams import Assembly
from aegis.models.values import Answer, Endpoint, Message, Wire

_WIRES: Final[dict[str, Wire]] = {"openai": OpenAI(), "anthropic": Anthropic()}


async def ask(
    egress: Egress,
    endpoint: Endpoint,
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]],
    *,
    seconds: float,
    max_bytes: int,
    hear: Callable[[str], None] | None = None,
) -> Answer:
    """The next message of the model, within `seconds` and `max_bytes` of answer.

    With `hear`, the answer is asked for as a stream, and `hear` gets the pieces of its text as they come. A provider
    may still answer whole. Raises `ModelFailed`, whose text holds nothing of request, key or answer.
    """
    wire = _WIRES[endpoint.api]
    try:
        key = read_secret(endpoint.key).reveal() if endpoint.key else ""
    except KeyFileError as error:
        raise ModelFailed("its key cannot be read") from error
    try:
        asked = wire.body(endpoint, messages, tools)
        asked, assembly = (asked, None) if hear is None else wire.streamed(asked)
        body = canonical(asked)
    except InvalidCall as error:
        raise ModelFailed("the conversation is no JSON text") from error
    headers = {**wire.headers(key), "content-type": "application/json"}
    request = Request(method="POST", url=endpoint.url + wire.path, headers=headers, body=body)
    try:
        async with egress.stream(request, total_seconds=seconds, max_bytes=max_bytes) as answered:
            if answered.status != 200:
                raise ModelFailed(f"it answered with status {answered.status}")
            if assembly is not None and hear is not None and _is_stream(answered):
                await _assembled(answered, assembly, hear)
                return wire.answer(assembly.document())
            answer = wire.answer(parse(b"".join([chunk async for chunk in answered.chunks()])))
            if hear is not None:
                hear(answer.text)
            return answer
    except EgressError as error:
        raise ModelFailed(f"it was not reached: {error}") from error
    except (InvalidCall, ForeignAnswer) as error:
        raise ModelFailed("it did not answer in its format") from error


def _is_stream(answered: Streamed) -> bool:
    return answered.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"


async def _assembled(answered: Streamed, assembly: Assembly, hear: Callable[[str], None]) -> None:
    reader = SseReader()

    def take(events: Iterable[Event]) -> None:
        for event in events:
            if event.data and not event.data.startswith("[DONE]"):
                hear(assembly.take(parse(event.data.encode())))

    async for chunk in answered.chunks():
        take(reader.feed(chunk))
    take(reader.end())
