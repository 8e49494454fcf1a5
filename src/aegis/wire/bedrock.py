"""Bedrock's Converse: tool uses in the output message, tool results in messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aegis.errors import ForeignAnswer
from aegis.wire.model import (
    Alike,
    HeldBytes,
    Path,
    Removal,
    Ruling,
    Step,
    StreamFilter,
    SuppliedContent,
    Wire,
    WireEvent,
    event_object,
    list_of,
    read_arguments,
    text_of,
)
from aegis.wire.parts import Names, PartsDialect
from aegis.wire.supplied import supplied_file, supplied_text, unread_part

_TEXT_FORMATS: Final = frozenset({"txt", "md", "csv", "html"})

# The events of a streamed Converse answer, with its tool uses held back until they are ruled on.


class BedrockStream:
    """One streamed answer: text passes at once; where the message stops, `answer` holds all its calls.

    The calls are then ruled on like those of a whole answer, and `released` gives the events of what is left.
    """

    def __init__(self) -> None:
        self.answer: Wire | None = None
        self._held: dict[int, Wire] = {}
        self._texts: dict[int, list[str]] = {}
        self._bytes = HeldBytes()
        self._next = 0

    def feed(self, event: Wire) -> list[Wire]:
        """Take the next event; gives what may go on now."""
        start, delta, stop = (event.get(f"contentBlock{name}") for name in ("Start", "Delta", "Stop"))
        if isinstance(start, dict) and "toolUse" in (start.get("start") or {}):
            self._hold(start)
            return []
        if isinstance(delta, dict) and delta.get("contentBlockIndex") in self._held:
            self._grow(delta)
            return []
        if isinstance(stop, dict) and stop.get("contentBlockIndex") in self._held:
            return []
        for block in (start, delta):
            if isinstance(block, dict) and isinstance(block.get("contentBlockIndex"), int):
                self._next = max(self._next, block["contentBlockIndex"] + 1)
        stopped = event.get("messageStop")
        if isinstance(stopped, dict) and self._held:
            self.answer = self._whole(stopped)
            return []
        return [event]

    def released(self, settled: Wire) -> list[Wire]:
        """The events of the ruled answer, and the end that waited for them."""
        self.answer = None
        self._held = {}
        events: list[Wire] = []
        for part in list_of(settled["output"]["message"].get("content")):
            index, self._next = self._next, self._next + 1
            use = part.get("toolUse")
            if use is None:
                body: Wire = {"text": text_of(part.get("text"))}
            else:
                named = {name: value for name, value in use.items() if name != "input"}
                events.append({"contentBlockStart": {"start": {"toolUse": named}, "contentBlockIndex": index}})
                spelled = use.get("input")
                body = {"toolUse": {"input": spelled if isinstance(spelled, str) else json.dumps(spelled)}}
            events.append({"contentBlockDelta": {"delta": body, "contentBlockIndex": index}})
            events.append({"contentBlockStop": {"contentBlockIndex": index}})
        return [*events, {"messageStop": {**settled["stop"], "stopReason": settled["stopReason"]}}]

    def _hold(self, start: Wire) -> None:
        index = start.get("contentBlockIndex")
        if type(index) is not int or index in self._held:
            raise ForeignAnswer("a block of the stream has no index of its own")
        self._held[index] = start["start"]["toolUse"]
        self._texts[index] = []

    def _grow(self, delta: Wire) -> None:
        text = text_of(((delta.get("delta") or {}).get("toolUse") or {}).get("input"))
        self._bytes.grow(len(text))
        self._texts[delta["contentBlockIndex"]].append(text)

    def _whole(self, stopped: Wire) -> Wire:
        """The held calls as a whole answer."""
        content: list[Any] = []
        for index, use in sorted(self._held.items()):
            text = "".join(self._texts[index])
            arguments, _ = read_arguments(text_of(use.get("name")), text)
            content.append({"toolUse": {**use, "input": text if arguments is None else arguments}})
        message = {"role": "assistant", "content": content}
        return {"output": {"message": message}, "stopReason": stopped.get("stopReason"), "stop": stopped}


class ConverseFilter:
    """`BedrockStream` as the filter of one streamed answer; the name of an event is the member that it would be."""

    def __init__(self) -> None:
        self._stream = BedrockStream()
        self.anchors: tuple[str, ...] = ("",)
        self.removals: list[Removal] = []

    def feed(self, event: WireEvent, value: Any = None) -> Step:
        """Take the next event."""
        if not event.event or event.event.endswith("Exception"):
            return Step(events=[event])
        wire = {event.event: event_object(event, value)}
        passing = self._stream.feed(wire)
        if self._stream.answer is not None:
            return Step(calls=BEDROCK.calls(self._stream.answer))
        return Step(events=[event if one is wire else _converse_event(one) for one in passing])

    def settle(self, rulings: Mapping[str, Ruling]) -> list[WireEvent]:
        """The events of the calls that may run, and the end that waited for them."""
        if self._stream.answer is None:
            return []
        settled = BEDROCK.settle(self._stream.answer, rulings, structured=False)
        self.removals += settled.removals
        return [_converse_event(one) for one in self._stream.released(settled.answer)]

    def alike(self, value: Wire) -> Alike | None:
        """Nothing: every event is read."""
        return None


def _converse_event(wire: Wire) -> WireEvent:
    ((name, value),) = wire.items()
    return WireEvent(event=name, data=json.dumps(value))


def converse_events(answer: Wire) -> Iterator[WireEvent]:
    """The stream that spells an answer which holds calls."""
    yield WireEvent(event="messageStart", data='{"role":"assistant"}')
    stopped = {"stop": {}, "stopReason": answer["stopReason"]}
    for event in BedrockStream().released({"output": answer["output"], **stopped}):
        yield _converse_event(event)


class ConverseDialect(PartsDialect):
    """The dialect of `POST /model/{modelId}/converse` and `/converse-stream`."""

    def stream(self, *, structured: bool) -> StreamFilter:
        """A filter for the events of one message."""
        return ConverseFilter()


class _Answers:
    """The output is one message."""

    def messages(self, answer: Wire) -> list[Wire]:
        """The output's message."""
        output = answer.get("output")
        message = output.get("message") if isinstance(output, dict) else None
        return [message] if isinstance(message, dict) else []

    def with_message(self, answer: Wire, at: int, message: Wire, *, ended: bool) -> Wire:
        """The answer with another message; without calls the turn is over."""
        stopped = {"stopReason": "end_turn"} if ended and answer.get("stopReason") == "tool_use" else {}
        return {**answer, "output": {**answer["output"], "message": message}, **stopped}

    def refusal(self, call: Wire, message: str) -> Wire:
        """A tool result that holds an error."""
        identity = call["toolUse"].get("toolUseId")
        return {"toolResult": {"toolUseId": identity, "content": [{"text": message}], "status": "error"}}

    def answer_id(self, answer: Wire) -> str:
        """The id of the request, which the response carries."""
        metadata = answer.get("ResponseMetadata")
        return str(metadata.get("RequestId") or "") if isinstance(metadata, dict) else ""

    def supplied(self, part: Wire, path: Path) -> Iterator[SuppliedContent]:
        """Texts and documents; pictures and videos cannot be read. Also those of results."""
        if isinstance(part.get("text"), str):
            yield supplied_text(part["text"], (*path, "text"), path)
        for kind in ("image", "video", "audio", "searchResult", "guardContent"):
            if isinstance(part.get(kind), dict):
                yield unread_part(part[kind], path, kind)
        document = part.get("document")
        if isinstance(document, dict):
            source = document.get("source")
            data = text_of(source.get("bytes")) if isinstance(source, dict) else ""
            media = f"text/{text_of(document.get('format'))}" if document.get("format") in _TEXT_FORMATS else ""
            yield supplied_file(media, data, (*path, "document", "source", "bytes"), path, document)
        result = part.get("toolResult")
        for index, inner in enumerate(list_of(result.get("content")) if isinstance(result, dict) else []):
            if isinstance(inner, dict) and "text" not in inner:
                yield from self.supplied(inner, (*path, "toolResult", "content", index))

    def places(self, event: Wire) -> list[int]:
        """The one message."""
        return [0] * len(self.messages(event))

    def is_last(self, event: Wire, at: int) -> bool:
        """A whole answer is the end of it."""
        return True


BEDROCK: Final = ConverseDialect(
    Names(
        messages="messages",
        parts="content",
        assistant="assistant",
        call="toolUse",
        call_id="toolUseId",
        arguments="input",
        result="toolResult",
        value="content",
    ),
    _Answers(),
)
