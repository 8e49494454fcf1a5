"""A streamed answer put together: each vendor's events in, and at the end the document that a whole answer would be."""

from __future__ import annotations

from typing import Any, Protocol

from aegis.core.strict_json import parse
from aegis.dialects.model import list_of, text_of
from aegis.errors import ForeignAnswer, InvalidCall


class Assembly(Protocol):
    """The events of one answer. `take` and `document` raise `ForeignAnswer` for what is not of the format."""

    def take(self, event: Any) -> str:
        """The next event; gives back what of the answer's text it adds."""
        ...

    def document(self) -> Any:
        """The whole answer, once it came to its end."""
        ...


class ChatAssembly:
    """The chunks of a chat completion of one choice."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._usage: Any = None
        self._ended = False

    def take(self, event: Any) -> str:
        if not isinstance(event, dict) or event.get("error"):
            raise ForeignAnswer("not a chunk of a chat completion")
        self._usage = event.get("usage") or self._usage
        said = ""
        for choice in list_of(event.get("choices")):
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if not isinstance(delta, dict):
                raise ForeignAnswer("not a chunk of a chat completion")
            said += text_of(delta.get("content"))
            for part in list_of(delta.get("tool_calls")):
                self._grow(part)
            self._ended = self._ended or bool(choice.get("finish_reason"))
        self._text.append(said)
        return said

    def document(self) -> Any:
        if not self._ended:
            raise ForeignAnswer("the stream broke off")
        calls = [
            {"id": call["id"], "function": {"name": call["name"], "arguments": "".join(call["arguments"])}}
            for _, call in sorted(self._calls.items())
        ]
        message = {"content": "".join(self._text), "tool_calls": calls}
        return {"choices": [{"message": message}], "usage": self._usage}

    def _grow(self, part: Any) -> None:
        index = part.get("index") if isinstance(part, dict) else None
        function = part.get("function") if isinstance(part, dict) else None
        if type(index) is not int or not isinstance(function, dict):
            raise ForeignAnswer("a call of the stream has no place or no function")
        call = self._calls.setdefault(index, {"id": "", "name": "", "arguments": []})
        call["id"] = call["id"] or text_of(part.get("id"))
        call["name"] = call["name"] or text_of(function.get("name"))
        call["arguments"].append(text_of(function.get("arguments")))


class MessageAssembly:
    """The events of a message of Anthropic's API."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._usage: dict[str, Any] = {}
        self._ended = False

    def take(self, event: Any) -> str:
        kind = event.get("type") if isinstance(event, dict) else "error"
        if kind == "error":
            raise ForeignAnswer("not an event of a message")
        try:
            if kind == "message_start":
                self._usage |= event["message"].get("usage") or {}
            elif kind == "message_delta":
                self._usage |= event.get("usage") or {}
            elif kind == "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
                return text_of(event["content_block"].get("text"))
            elif kind == "content_block_delta":
                return self._grow(event["index"], event["delta"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ForeignAnswer("not an event of a message") from error
        self._ended = self._ended or kind == "message_stop"
        return ""

    def document(self) -> Any:
        if not self._ended:
            raise ForeignAnswer("the stream broke off")
        blocks = [self._whole(index, block) for index, block in sorted(self._blocks.items())]
        return {"type": "message", "role": "assistant", "content": blocks, "usage": self._usage}

    def _grow(self, index: int, delta: dict[str, Any]) -> str:
        if delta["type"] == "text_delta":
            self._blocks[index]["text"] += delta["text"]
            return str(delta["text"])
        if delta["type"] == "input_json_delta":
            self._inputs.setdefault(index, []).append(delta["partial_json"])
        return ""

    def _whole(self, index: int, block: dict[str, Any]) -> dict[str, Any]:
        text = "".join(self._inputs.get(index, ()))
        if not text:
            return block
        try:
            return {**block, "input": parse(text.encode())}
        except InvalidCall as error:
            raise ForeignAnswer("the input of a call is not JSON") from error
