"""Chat completions, as OpenAI and everything compatible with it speak them.

Source: the reference of `POST /v1/chat/completions` (platform.openai.com/docs/api-reference/chat).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from aegis.core.judging import ModelSpec
from aegis.egress import Request
from aegis.judges.providers.turns import Answered, Asked, BadAnswer, Turn, count


class OpenAI:
    """The format of chat completions."""

    def request(
        self, model: ModelSpec, key: str, system: str, turns: Sequence[Turn], tools: Sequence[dict[str, Any]]
    ) -> Request:
        body: dict[str, Any] = {
            "model": model.name,
            "messages": [{"role": "system", "content": system}, *map(_message, turns)],
            "max_tokens": model.max_tokens,
            "temperature": 0,
        }
        if tools:
            body["tools"] = [
                {"type": "function", "function": {**tool, "name": tool["name"].replace(".", "__")}} for tool in tools
            ]
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return Request(method="POST", url=f"{model.url}/chat/completions", headers=headers, body=orjson.dumps(body))

    def answer(self, body: bytes) -> Answered:
        try:
            value = orjson.loads(body)
            choices, usage = value["choices"], value.get("usage") or {}
            if len(choices) != 1:
                raise BadAnswer("the answer does not hold exactly one choice")
            message = choices[0]["message"]
            content = message.get("content") or ""
            calls = tuple(_call(one) for one in message.get("tool_calls") or ())
            if not isinstance(content, str):
                raise BadAnswer("the message is not text")
            return Answered(
                turn=Turn(role="model", text=content, calls=calls),
                tokens_in=count(usage.get("prompt_tokens")),
                tokens_out=count(usage.get("completion_tokens")),
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise BadAnswer("the answer is not a chat completion") from error


def _message(turn: Turn) -> dict[str, Any]:
    if turn.role == "tool":
        return {"role": "tool", "tool_call_id": turn.call_id, "content": turn.text}
    if turn.role == "user":
        return {"role": "user", "content": turn.text}
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {
                    "name": call.name.replace(".", "__"),
                    "arguments": orjson.dumps(call.arguments or {}).decode(),
                },
            }
            for call in turn.calls
        ]
    return message


def _call(one: Any) -> Asked:
    function = one["function"]
    try:
        arguments = orjson.loads(function["arguments"] or "{}")
    except ValueError:
        arguments = None
    return Asked(
        call_id=str(one["id"]),
        name=str(function["name"]).replace("__", "."),
        arguments=arguments if isinstance(arguments, dict) else None,
    )
