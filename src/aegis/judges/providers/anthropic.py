"""Messages, as Anthropic speaks them.

Source: the reference of `POST /v1/messages` (docs.anthropic.com/en/api/messages).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from aegis.core.judging import ModelSpec
from aegis.egress import Request
from aegis.judges.providers.turns import Answered, Asked, BadAnswer, Turn, count

VERSION: Final = "2023-06-01"


class Anthropic:
    """The format of messages."""

    def request(
        self, model: ModelSpec, key: str, system: str, turns: Sequence[Turn], tools: Sequence[dict[str, Any]]
    ) -> Request:
        body: dict[str, Any] = {
            "model": model.name,
            "system": system,
            "messages": _messages(turns),
            "max_tokens": model.max_tokens,
            "temperature": 0,
        }
        if tools:
            body["tools"] = [
                {
                    "name": tool["name"].replace(".", "__"),
                    "description": tool["description"],
                    "input_schema": tool["parameters"],
                }
                for tool in tools
            ]
        headers = {"Content-Type": "application/json", "anthropic-version": VERSION}
        if key:
            headers["x-api-key"] = key
        return Request(method="POST", url=f"{model.url}/v1/messages", headers=headers, body=orjson.dumps(body))

    def answer(self, body: bytes) -> Answered:
        try:
            value = orjson.loads(body)
            if value["type"] != "message" or value["role"] != "assistant":
                raise BadAnswer("the answer is not a message")
            usage, text = value.get("usage") or {}, ""
            calls: list[Asked] = []
            for block in value["content"]:
                if block["type"] == "text":
                    text += block["text"]
                elif block["type"] == "tool_use":
                    given = block["input"]
                    name = str(block["name"]).replace("__", ".")
                    arguments = given if isinstance(given, dict) else None
                    calls.append(Asked(call_id=str(block["id"]), name=name, arguments=arguments))
            return Answered(
                turn=Turn(role="model", text=text, calls=tuple(calls)),
                tokens_in=count(usage.get("input_tokens")),
                tokens_out=count(usage.get("output_tokens")),
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise BadAnswer("the answer is not a message") from error


def _messages(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Roles take turns here: results of several calls belong to one message of the user."""
    messages: list[dict[str, Any]] = []
    for turn in turns:
        role = "assistant" if turn.role == "model" else "user"
        blocks: list[dict[str, Any]] = []
        if turn.role == "tool":
            blocks.append({"type": "tool_result", "tool_use_id": turn.call_id, "content": turn.text})
        elif turn.text:
            blocks.append({"type": "text", "text": turn.text})
        blocks += [
            {
                "type": "tool_use",
                "id": call.call_id,
                "name": call.name.replace(".", "__"),
                "input": call.arguments or {},
            }
            for call in turn.calls
        ]
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages
