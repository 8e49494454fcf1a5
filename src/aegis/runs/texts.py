"""The texts of messages in the shape of chat completions: read, and replaced one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from aegis.models.values import Message, texts

Change = Callable[[str], str]


def with_texts(message: Message, change: Change) -> Message:
    """The message with every text changed; everything else is kept."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": change(content)}
    if isinstance(content, list):
        parts: list[Any] = [
            {**part, "text": change(part["text"])}
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
        return {**message, "content": parts}
    return message


def all_texts(messages: Iterable[Message]) -> Iterator[str]:
    """The texts of several messages, in order."""
    for message in messages:
        yield from texts(message)
