"""Ollama's `/api/chat`: its messages are read as lists of parts, and written back as they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aegis.errors import ForeignAnswer
from aegis.wire.model import (
    Path,
    Proposed,
    Recall,
    Ruling,
    StreamFilter,
    SuppliedContent,
    ToolOutput,
    Wire,
    WireEvent,
    WireSettled,
    list_of,
    text_of,
)
from aegis.wire.parts import Names, PartsDialect
from aegis.wire.supplied import supplied_text, unread_part

_NAMES: Final = Names(
    messages="messages",
    parts="parts",
    assistant="assistant",
    call="function",
    call_id="id",
    arguments="arguments",
    result="result",
    value="content",
)


def _read(message: Any) -> Any:
    """A message as parts: its text, its calls, or the one result that it is."""
    if not isinstance(message, dict):
        return message
    if message.get("role") == "tool":
        result = {"name": message.get("tool_name") or message.get("name"), "content": message.get("content")}
        if message.get("tool_call_id"):
            result["id"] = message["tool_call_id"]
        return {"role": "user", "parts": [{"result": result}], "own": message}
    text = [{"text": message["content"]}] if message.get("content") else []
    calls = [_call(one) for one in list_of(message.get("tool_calls"))]
    return {"role": message.get("role"), "parts": [*text, *calls], "own": message}


def _call(call: Any) -> Any:
    """A call as a part; its id stands beside the function, and belongs to it here."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not call.get("id"):
        return call
    return {**call, "function": {**function, "id": call["id"]}}


def _written(message: Any) -> list[Any]:
    """The messages that a message of parts is; one that was not changed is the one that it was read from."""
    own = message.get("own") if isinstance(message, dict) else message
    if own is not None and (not isinstance(message, dict) or _read(own)["parts"] == message["parts"]):
        return [own]
    results = [
        {"role": "tool", "tool_name": part["result"].get("name"), "content": part["result"]["content"],
         **({"tool_call_id": part["result"]["id"]} if part["result"].get("id") else {})}
        for part in message["parts"] if "result" in part
    ]  # fmt: skip
    rest = [part for part in message["parts"] if "result" not in part]
    if not rest and results:
        return results
    calls = [_uncalled(part) for part in rest if "function" in part]
    kept = {name: value for name, value in (own or {}).items() if name not in ("tool_calls", "content")}
    text = "\n".join(part["text"] for part in rest if "text" in part)
    spoken = {"role": message["role"], **kept, "content": text, **({"tool_calls": calls} if calls else {})}
    return [*results, spoken]


def _uncalled(part: Wire) -> Wire:
    function = {name: value for name, value in part["function"].items() if name != "id"}
    return {**part, "function": function}


class _Answers:
    """An answer is one message, and so is each event of a stream; the last one is `done`."""

    def messages(self, answer: Wire) -> list[Wire]:
        """The message, as parts."""
        message = _read(answer.get("message"))
        return [message] if isinstance(message, dict) else []

    def with_message(self, answer: Wire, at: int, message: Wire, *, ended: bool) -> Wire:
        """The answer with another message."""
        return {**answer, "message": _written(message)[-1]}

    def refusal(self, call: Wire, message: str) -> Wire:
        """A result that holds the refusal."""
        function = call["function"]
        named = {name: function[name] for name in ("id", "name") if function.get(name)}
        return {"result": {**named, "content": message}}

    def answer_id(self, answer: Wire) -> str:
        """The time to which an answer was made: it has no other name."""
        return text_of(answer.get("created_at"))

    def supplied(self, part: Wire, path: Path) -> Iterator[SuppliedContent]:
        """Nothing: what a message brings is read where it stands (`OllamaChat.supplied`)."""
        yield from ()

    def places(self, event: Wire) -> list[int]:
        """The one message."""
        return [0] * len(self.messages(event))

    def is_last(self, event: Wire, at: int) -> bool:
        """The event that says so."""
        return bool(event.get("done"))


class OllamaChat:
    """The dialect of `POST /api/chat`."""

    def __init__(self) -> None:
        self._parts = PartsDialect(_NAMES, _Answers())

    def anchors(self, answer: Wire) -> tuple[str, ...]:
        """The time of the answer; no conversation is kept under it."""
        return self._parts.anchors(answer)

    def calls(self, answer: Wire) -> list[Proposed]:
        """The calls of the message."""
        return self._parts.calls(answer)

    def settle(self, answer: Wire, rulings: Mapping[str, Ruling], *, structured: bool) -> WireSettled:
        """The answer without its refused calls; without any call left it ends as text."""
        return self._parts.settle(answer, rulings, structured=structured)

    def stream(self, *, structured: bool) -> StreamFilter:
        """A filter for the lines of one answer."""
        return self._parts.stream(structured=structured)

    def structured(self, request: Wire) -> bool:
        """Whether a format was asked for."""
        return bool(request.get("format"))

    def issued(self, request: Wire) -> list[Proposed]:
        """The calls that the conversation holds."""
        return self._parts.issued(_conversation(request))

    def answered(self, request: Wire) -> list[str]:
        """The calls that the request gives results of."""
        return self._parts.answered(_conversation(request))

    def outputs(self, request: Wire) -> list[ToolOutput]:
        """The messages of the role `tool`."""
        found: list[ToolOutput] = []
        for output in self._parts.outputs(_conversation(request)):
            found.append(
                ToolOutput(call_id=output.call_id, value=output.value, path=("messages", output.path[1], "content"))
            )
        return found

    def supplied(self, request: Wire) -> list[SuppliedContent]:
        """The user's texts and pictures."""
        found: list[SuppliedContent] = []
        for at, message in enumerate(list_of(request.get("messages"))):
            path: Path = ("messages", at)
            if isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), str):
                found.append(supplied_text(message["content"], (*path, "content"), path))
            for picture in list_of(message.get("images") if isinstance(message, dict) else None):
                found.append(unread_part(picture, path, "image"))
        return found

    def with_arguments(self, call: Wire, arguments: dict[str, Any]) -> Wire:
        """A call with other arguments."""
        return self._parts.with_arguments(call, arguments)

    def put_back(self, request: Wire, recall: Recall) -> Wire:
        """The request whose answers hold their refused calls again, each with its result."""
        read = _conversation(request)
        restored = self._parts.put_back(read, recall)
        if restored is read:
            return request
        return {**request, "messages": [one for message in restored["messages"] for one in _written(message)]}


def _conversation(request: Wire) -> Wire:
    return {**request, "messages": [_read(message) for message in list_of(request.get("messages"))]}


def ollama_calls(calls: list[Wire]) -> list[Wire]:
    """Calls of the block model as Ollama spells them."""
    return [_uncalled(call) for call in calls]


class LineReader:
    """Answers one a line (NDJSON), incrementally and in bounded memory."""

    def __init__(self, most: int) -> None:
        self._partial = b""
        self._most = most

    @property
    def at_rest(self) -> bool:
        """Whether the next byte begins a new line."""
        return not self._partial

    def feed(self, chunk: bytes) -> list[WireEvent]:
        """The lines that `chunk` completes; raises `ForeignAnswer` for one that is too long or not UTF-8."""
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if len(self._partial) > self._most:
            raise ForeignAnswer("a line of the stream is too large")
        return [self._event(line) for line in lines if line.strip()]

    def end(self) -> list[WireEvent]:
        """The line that stands at the end without a line feed."""
        rest, self._partial = self._partial, b""
        return [self._event(rest)] if rest.strip() else []

    @staticmethod
    def _event(line: bytes) -> WireEvent:
        try:
            return WireEvent(data=line.decode())
        except UnicodeDecodeError as error:
            raise ForeignAnswer("the stream is not UTF-8") from error


def line_bytes(event: WireEvent) -> bytes:
    """One event as a line."""
    return f"{event.data}\n".encode()
