"""Asking a model for its next message: one request, one whole answer, in the shape of chat completions."""

from __future__ import annotations

from typing import Any, Final

import orjson

from aegis.core.strict_json import parse
from aegis.egress import Egress, Request
from aegis.errors import AegisError, EgressError, ForeignAnswer, InvalidCall, KeyFileError
from aegis.judges.providers.turns import count
from aegis.keys.reference import read_secret
from aegis.runs.answer import Answer
from aegis.runs.anthropic import from_anthropic, to_anthropic
from aegis.runs.guard import Message
from aegis.runs.plan import Model

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
_ANTHROPIC_VERSION: Final = "2023-06-01"


class ModelFailed(AegisError):
    """A model did not answer, or not as its dialect says; another one may be asked."""


async def ask(
    egress: Egress, model: Model, messages: list[Message], tools: list[dict[str, Any]], seconds: float
) -> Answer:
    """The next message of `model`. Raises `ModelFailed`, whose text holds nothing of request or answer."""
    try:
        secret = read_secret(model.provider.key)
    except KeyFileError as error:
        raise ModelFailed(f"the key of the model `{model.name}` cannot be read") from error
    name = model.settings.model
    if model.provider.dialect == "anthropic":
        url, body = f"{model.provider.url}/v1/messages", to_anthropic(name, messages, tools)
        headers = {"x-api-key": secret.reveal(), "anthropic-version": _ANTHROPIC_VERSION}
    else:
        url = f"{model.provider.url}/chat/completions"
        body = {"model": name, "messages": messages} | ({"tools": tools} if tools else {})
        headers = {"authorization": f"Bearer {secret.reveal()}"}
    request = Request(
        method="POST", url=url, headers={**headers, "content-type": "application/json"}, body=orjson.dumps(body)
    )
    try:
        answer = await egress.send(request, total_seconds=seconds, max_bytes=MAX_ANSWER_BYTES)
        if answer.status != 200:
            raise ModelFailed(f"the model `{model.name}` answered with status {answer.status}")
        document = parse(answer.body)
        return from_anthropic(document) if model.provider.dialect == "anthropic" else _from_chat(document)
    except EgressError as error:
        raise ModelFailed(f"the model `{model.name}` was not reached: {error}") from error
    except (InvalidCall, ForeignAnswer) as error:
        raise ModelFailed(f"the model `{model.name}` did not answer in its dialect") from error


def _from_chat(document: Any) -> Answer:
    try:
        choice = document["choices"][0]["message"]
        usage = document.get("usage") or {}
        message: Message = {"role": "assistant", "content": choice.get("content") or ""}
        calls = choice.get("tool_calls") or []
        if calls:
            message["tool_calls"] = [_call(call) for call in calls]
        if not isinstance(message["content"], str):
            raise ForeignAnswer("the content of the answer is not a text")
        read, wrote = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
        return Answer(message=message, read=read, wrote=wrote)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ForeignAnswer("not an answer of chat completions") from error


def _call(call: Any) -> dict[str, Any]:
    function = {"name": str(call["function"]["name"]), "arguments": str(call["function"]["arguments"])}
    return {"id": str(call["id"]), "type": "function", "function": function}
