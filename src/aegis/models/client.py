"""Asking a model for its next message: one request, one whole answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aegis.core.canonical import canonical
from aegis.core.strict_json import parse
from aegis.egress import Egress, Request
from aegis.errors import EgressError, ForeignAnswer, InvalidCall, KeyFileError, ModelFailed
from aegis.keys.reference import read_secret
from aegis.models.anthropic import Anthropic
from aegis.models.openai import OpenAI
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
) -> Answer:
    """The next message of the model, within `seconds` and `max_bytes` of answer.

    Raises `ModelFailed`, whose text holds nothing of request, key or answer.
    """
    wire = _WIRES[endpoint.api]
    try:
        key = read_secret(endpoint.key).reveal() if endpoint.key else ""
    except KeyFileError as error:
        raise ModelFailed("its key cannot be read") from error
    try:
        body = canonical(wire.body(endpoint, messages, tools))
    except InvalidCall as error:
        raise ModelFailed("the conversation is no JSON text") from error
    headers = {**wire.headers(key), "content-type": "application/json"}
    request = Request(method="POST", url=endpoint.url + wire.path, headers=headers, body=body)
    try:
        answered = await egress.send(request, total_seconds=seconds, max_bytes=max_bytes)
        if answered.status != 200:
            raise ModelFailed(f"it answered with status {answered.status}")
        return wire.answer(parse(answered.body))
    except EgressError as error:
        raise ModelFailed(f"it was not reached: {error}") from error
    except (InvalidCall, ForeignAnswer) as error:
        raise ModelFailed("it did not answer in its format") from error
