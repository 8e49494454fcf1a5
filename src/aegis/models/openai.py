"""Chat completions, as OpenAI and everything compatible with it speak them.

Source: the reference of `POST /v1/chat/completions` (platform.openai.com/docs/api-reference/chat).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aegis.errors import ForeignAnswer
from aegis.models.streams import Assembly, ChatAssembly
from aegis.models.values import Answer, Asked, Endpoint, Message, count


class OpenAI:
    """The format of chat completions."""

    path: Final = "/chat/completions"

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def body(self, endpoint: Endpoint, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": endpoint.name, "messages": list(messages)}
        if endpoint.max_tokens is not None:
            body["max_tokens"] = endpoint.max_tokens
        if endpoint.temperature is not None:
            body["temperature"] = endpoint.temperature
        if tools:
            body["tools"] = list(tools)
        return body

    def streamed(self, body: dict[str, Any]) -> tuple[dict[str, Any], Assembly]:
        return {**body, "stream": True, "stream_options": {"include_usage": True}}, ChatAssembly()

    def answer(self, document: Any) -> Answer:
        try:
            (choice,) = document["choices"]  # one was asked for
            message, usage = choice["message"], document.get("usage") or {}
            text = message.get("content") or ""
            if not isinstance(text, str):
                raise ForeignAnswer("the content of the answer is not a text")
            return Answer(
                text=text,
                calls=tuple(_call(one) for one in message.get("tool_calls") or ()),
                read=count(usage.get("prompt_tokens")),
                wrote=count(usage.get("completion_tokens")),
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ForeignAnswer("not an answer of chat completions") from error


def _call(one: Any) -> Asked:
    function = one["function"]
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        raise ForeignAnswer("the arguments of a call are not a text")
    return Asked(call_id=str(one["id"]), name=str(function["name"]), arguments=arguments)
