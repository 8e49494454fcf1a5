"""Messages, as Anthropic speaks them.

Source: the reference of `POST /v1/messages` (docs.anthropic.com/en/api/messages).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aegis.core.canonical import canonical
from aegis.core.strict_json import parse
from aegis.errors import ForeignAnswer, InvalidCall
from aegis.models.streams import Assembly, MessageAssembly
from aegis.models.values import Answer, Asked, Endpoint, Message, count, texts

VERSION: Final = "2023-06-01"
MAX_TOKENS: Final = 4_096  # this API asks every request to say how long the answer may be


class Anthropic:
    """The format of messages."""

    path: Final = "/v1/messages"

    def headers(self, key: str) -> dict[str, str]:
        named = {"x-api-key": key} if key else {}
        return {**named, "anthropic-version": VERSION}

    def body(self, endpoint: Endpoint, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
        system = "\n\n".join(text for message in messages if message["role"] == "system" for text in texts(message))
        body: dict[str, Any] = {
            "model": endpoint.name,
            "max_tokens": MAX_TOKENS if endpoint.max_tokens is None else endpoint.max_tokens,
            "messages": _turns(messages),
        }
        if endpoint.temperature is not None:
            body["temperature"] = endpoint.temperature
        if system:
            body["system"] = system
        if tools:
            body["tools"] = [
                {
                    "name": tool["function"]["name"],
                    "description": tool["function"].get("description", ""),
                    "input_schema": tool["function"].get("parameters") or {"type": "object"},
                }
                for tool in tools
            ]
        return body

    def streamed(self, body: dict[str, Any]) -> tuple[dict[str, Any], Assembly]:
        return {**body, "stream": True}, MessageAssembly()

    def answer(self, document: Any) -> Answer:
        try:
            if document["type"] != "message" or document["role"] != "assistant":
                raise ForeignAnswer("not an answer of messages")
            usage, text = document.get("usage") or {}, ""
            calls: list[Asked] = []
            for block in document["content"]:
                if block["type"] == "text":
                    text += block["text"]
                elif block["type"] == "tool_use":
                    arguments = canonical(block["input"]).decode()
                    calls.append(Asked(call_id=str(block["id"]), name=str(block["name"]), arguments=arguments))
            return Answer(
                text=text,
                calls=tuple(calls),
                read=count(usage.get("input_tokens")),
                wrote=count(usage.get("output_tokens")),
            )
        except (InvalidCall, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ForeignAnswer("not an answer of messages") from error


def _turns(messages: Sequence[Message]) -> list[Message]:
    """Turns that alternate: results of tools go into the user's turn that follows."""
    turns: list[Message] = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message["role"] == "tool":
        content = "".join(texts(message))
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts(message) if text]
    for call in message.get("tool_calls", ()):
        blocks.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": call["function"]["name"],
                "input": _arguments(call["function"]["arguments"]),
            }
        )
    return blocks


def _arguments(text: str) -> Any:
    """What the model gave as arguments; what does not parse was refused, and goes back as nothing."""
    try:
        return parse(text.encode())
    except (InvalidCall, UnicodeEncodeError):
        return {}
