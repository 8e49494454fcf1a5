"""Chat completions' messages as Anthropic's, and the answer back."""

from __future__ import annotations

from typing import Any, Final

import orjson

from aegis.core.strict_json import parse
from aegis.errors import ForeignAnswer, InvalidCall
from aegis.judges.providers.turns import count
from aegis.runs.answer import Answer
from aegis.runs.guard import Message
from aegis.runs.texts import texts

MAX_TOKENS: Final = 4_096  # this API asks every request to say how long the answer may be


def to_anthropic(model: str, messages: list[Message], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """The body of a request to `/v1/messages`."""
    system = "\n\n".join(text for message in messages if message["role"] == "system" for text in texts(message))
    body: dict[str, Any] = {"model": model, "max_tokens": MAX_TOKENS, "messages": _turns(messages)}
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


def from_anthropic(document: Any) -> Answer:
    """The answer as an assistant message; raises `ForeignAnswer`."""
    try:
        text: list[str] = []
        calls: list[dict[str, Any]] = []
        for block in document["content"]:
            if block["type"] == "text":
                text.append(str(block["text"]))
            elif block["type"] == "tool_use":
                arguments = orjson.dumps(block["input"]).decode()
                function = {"name": str(block["name"]), "arguments": arguments}
                calls.append({"id": str(block["id"]), "type": "function", "function": function})
        message: Message = {"role": "assistant", "content": "".join(text)}
        if calls:
            message["tool_calls"] = calls
        usage = document.get("usage") or {}
        return Answer(message=message, read=count(usage.get("input_tokens")), wrote=count(usage.get("output_tokens")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ForeignAnswer("not an answer of messages") from error


def _turns(messages: list[Message]) -> list[Message]:
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
    except InvalidCall:
        return {}
