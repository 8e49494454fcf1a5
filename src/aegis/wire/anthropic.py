"""Anthropic messages: tool uses in answers, results and refusals in requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct, field

from aegis.core.canonical import canonical
from aegis.errors import ForeignAnswer
from aegis.wire.model import (
    NO_NAME,
    NO_RULING,
    Alike,
    HeldBytes,
    Proposed,
    Recall,
    Refused,
    Removal,
    Ruling,
    Step,
    SuppliedContent,
    ToolOutput,
    Wire,
    WireEvent,
    WireOnce,
    WireSettled,
    call_key,
    ended,
    event_object,
    list_of,
    read_arguments,
    ruled_blocks,
    said_in,
    text_of,
)
from aegis.wire.supplied import supplied_to_messages

# Tool-use blocks as Anthropic spells them, whole or streamed.

# Executed by the provider before the answer arrives: there is nothing left to decide.
_SERVER_USES: Final = frozenset({"server_tool_use", "mcp_tool_use"})


def is_call(block: object) -> bool:
    """Whether a content block asks the agent's side to execute something; unknown kinds of tool uses do."""
    if not isinstance(block, dict):
        return False
    kind = text_of(block.get("type"))
    return kind.endswith("tool_use") and kind not in _SERVER_USES


def proposed(block: Wire, key: str) -> Proposed:
    """The call that a block proposes; a toolset is the server of its members."""
    tool, toolset = text_of(block.get("name")), text_of(block.get("toolset_name"))
    arguments, problem = read_arguments(tool, block.get("input"))
    if not tool:
        arguments, problem = None, NO_NAME
    return Proposed(
        key=key,
        call_id=text_of(block.get("id")),
        tool=tool,
        server=f"toolset:{toolset}" if toolset else None,
        arguments=arguments,
        problem=problem,
    )


def rule(block: Wire, index: int, ruling: Ruling) -> Wire | Refused:
    """The block as it may go on, or the record of its refusal."""
    if ruling.allowed:
        return block if ruling.arguments is None else {**block, "input": ruling.arguments}
    # Input that could not be read is not an object, and only an object may be sent back.
    whole = block if isinstance(block.get("input"), dict) else {**block, "input": {}}
    return Refused(call=whole, call_id=text_of(block.get("id")), index=index, message=ruling.message)


def refusal_of(refused: Refused) -> Wire:
    """The result block that tells the model of a refusal."""
    result = {"type": "tool_result", "tool_use_id": refused.call_id, "content": refused.message, "is_error": True}
    toolset = refused.call.get("toolset_name")
    return result if toolset is None else {**result, "toolset_name": toolset}


def keys_of(kept: Iterable[Wire]) -> tuple[str, ...]:
    """The keys of the calls that stay in an answer."""
    return tuple(call_key(proposed(block, "")) for block in kept)


def ending(refused: list[Refused], message: Wire, structured: bool) -> tuple[list[Wire], dict[str, Any], Removal]:
    """The blocks and the members with which a message ends that has no call left, and the removal.

    Where text is parsed as data there is no text block: the message ends as a refusal and explains itself.
    """
    said, removal = ended(refused)
    stopped = message.get("stop_reason") == "tool_use"
    if structured:
        details = {"type": "refusal", "category": None, "explanation": said}
        return [], {"stop_reason": "refusal", "stop_details": details}, removal
    return [{"type": "text", "text": said, "citations": None}], {"stop_reason": "end_turn"} if stopped else {}, removal


# The events of a streamed Anthropic message, with its calls held back until they are ruled on.

_TEXTS: Final = {"text_delta": "text", "thinking_delta": "thinking"}


class _Held(Struct):
    """One tool-use block that is held back."""

    index: int
    start: Wire
    events: list[Wire] = field(default_factory=list)
    stopped: bool = False

    def block(self) -> Wire:
        """The whole block, with its input read from the deltas; unreadable input stays text."""
        block: Wire = self.start["content_block"]
        parts = [
            text_of(delta.get("partial_json"))
            for event in self.events
            if isinstance(delta := event.get("delta"), dict) and delta.get("type") == "input_json_delta"
        ]
        if not any(parts):
            return block
        text = "".join(parts)
        arguments, _ = read_arguments(text_of(block.get("name")), text)
        return {**block, "input": text if arguments is None else arguments}


class AnthropicStream:
    """The filter of one streamed message.

    Calls that follow one another are released together, as soon as something else follows; blocks
    are numbered anew, without gaps.
    """

    def __init__(self, *, structured: bool) -> None:
        self._structured = structured
        self._held: dict[int, _Held] = {}
        self._bytes = HeldBytes()
        self._next = 0
        self._places: dict[int, int] = {}
        self._kept: list[Wire] = []
        self._refused: list[Refused] = []
        self._waiting: Wire | None = None
        self._done = False
        self.anchors: tuple[str, ...] = ("",)
        self.removals: list[Removal] = []

    def feed(self, event: WireEvent, value: Any = None) -> Step:
        """Take the next event."""
        if not event.data:
            return Step(events=[event])
        wire = event_object(event, value)
        kind = text_of(wire.get("type")) or event.event
        if kind == "message_start":
            self._start(wire)
        elif kind == "content_block_start" and is_call(wire.get("content_block")):
            self._hold_block(wire, len(event.data))
            return Step()
        elif (
            kind in ("content_block_delta", "content_block_stop")
            and (held := self._held.get(self._index(wire))) is not None
        ):
            self._hold_event(held, kind, wire, len(event.data))
            return Step()
        elif kind in ("content_block_start", "message_delta", "message_stop"):
            return self._ask(kind, wire, event)
        return Step(events=[self._placed(kind, wire, event)])

    def alike(self, value: Wire) -> Alike | None:
        """Events that add to the text of a block which is not held back; it keeps its place for good."""
        delta = value.get("delta")
        if value.get("type") != "content_block_delta" or not isinstance(delta, dict):
            return None
        name = _TEXTS.get(text_of(delta.get("type")))
        return Alike(gaps=(("delta", name),), passed=lambda _: True) if name else None

    def settle(self, rulings: Mapping[str, Ruling]) -> list[WireEvent]:
        """The events that release the calls which may run, and the event that waited for them."""
        events: list[WireEvent] = []
        for held in self._held.values():
            block = held.block()
            ruled = rule(block, held.index, rulings.get(str(held.index), NO_RULING))
            if isinstance(ruled, Refused):
                self._refused.append(ruled)
            else:
                self._kept.append(ruled)
                events += self._released(held, ruled, changed=ruled is not block)
        self._held = {}
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            events += self._resumed(text_of(waiting.get("type")), waiting)
        return events

    def _start(self, wire: Wire) -> None:
        message = wire.get("message")
        if isinstance(message, dict):
            self.anchors = (text_of(message.get("id")),)
            content = message.get("content")
            if isinstance(content, list) and any(is_call(block) for block in content):
                raise ForeignAnswer("the stream starts with a call")

    def _hold_block(self, wire: Wire, size: int) -> None:
        index = self._index(wire)
        if index in self._places or index in self._held:
            raise ForeignAnswer("two blocks of the stream have the same index")
        self._held[index] = _Held(index=index, start=wire)
        self._bytes.grow(size)

    def _hold_event(self, held: _Held, kind: str, wire: Wire, size: int) -> None:
        held.events.append(wire)
        held.stopped = held.stopped or kind == "content_block_stop"
        self._bytes.grow(size)

    @staticmethod
    def _index(wire: Wire) -> int:
        index = wire.get("index")
        if type(index) is not int:
            raise ForeignAnswer("a block of the stream has no index")
        return index

    def _ask(self, kind: str, wire: Wire, event: WireEvent) -> Step:
        # A block that never stopped was cut off: it is not a call, and is not passed on.
        self._held = {index: held for index, held in self._held.items() if held.stopped}
        if not self._held:
            return Step(events=self._resumed(kind, wire, event))
        self._waiting = {**wire, "type": kind}
        return Step(calls=[proposed(held.block(), str(held.index)) for held in self._held.values()])

    def _resumed(self, kind: str, wire: Wire, event: WireEvent | None = None) -> list[WireEvent]:
        """The event that ends a run of calls; before the end of the message, what stands for refused ones."""
        if kind == "content_block_start":
            index = self._index(wire)
            if index in self._places:
                raise ForeignAnswer("two blocks of the stream have the same index")
            self._places[index], self._next = self._next, self._next + 1
        elif kind == "message_delta" and self._refused and not self._done:
            return self._ended(wire)
        return [self._placed(kind, wire, event)]

    def _ended(self, wire: Wire) -> list[WireEvent]:
        self._done = True
        if self._kept:
            self.removals.append(Removal(refused=tuple(self._refused), kept=keys_of(self._kept)))
            return [_event(wire)]
        delta = wire.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        blocks, members, removal = ending(self._refused, delta, self._structured)
        self.removals.append(removal)
        events: list[WireEvent] = []
        for block in blocks:
            place, self._next = self._next, self._next + 1
            text = {"type": "text_delta", "text": block["text"]}
            events += [
                _event({"type": "content_block_start", "index": place, "content_block": {**block, "text": ""}}),
                _event({"type": "content_block_delta", "index": place, "delta": text}),
                _event({"type": "content_block_stop", "index": place}),
            ]
        return [*events, _event({**wire, "delta": {**delta, **members}})]

    def _released(self, held: _Held, ruled: Wire, *, changed: bool) -> list[WireEvent]:
        place, self._next = self._next, self._next + 1
        self._places[held.index] = place
        wires = [held.start, *held.events]
        if changed:
            given = canonical(ruled["input"]).decode()
            wires = [
                {**held.start, "content_block": {**ruled, "input": {}}},
                {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": given}},
                {"type": "content_block_stop"},
            ]
        return [_event({**wire, "index": place}) for wire in wires]

    def _placed(self, kind: str, wire: Wire, event: WireEvent | None) -> WireEvent:
        """The event with the index that its block has after the filter; the original where that is the same."""
        if kind.startswith("content_block_"):
            place = self._places.get(self._index(wire))
            if place is None:
                raise ForeignAnswer("an event of the stream belongs to no block")
            if place != wire["index"]:
                return _event({**wire, "index": place})
        return event if event is not None else _event(wire)


def _event(wire: Wire) -> WireEvent:
    return WireEvent(event=text_of(wire.get("type")), data=json.dumps(wire, separators=(",", ":")))


class AnthropicMessages:
    """The dialect of `POST /v1/messages`."""

    def anchors(self, answer: Wire) -> tuple[str, ...]:
        """The message's id; a thread that the server keeps is continued from it."""
        return (text_of(answer.get("id")),)

    def calls(self, answer: Wire) -> list[Proposed]:
        """Every block that the agent's side executes."""
        return [proposed(block, str(index)) for index, block in enumerate(_content(answer)) if is_call(block)]

    def settle(self, answer: Wire, rulings: Mapping[str, Ruling], *, structured: bool) -> WireSettled:
        """The message without its refused calls; where no call is left it ends as text."""
        ruled = ruled_blocks(_content(answer), rulings, is_call, rule)
        if not ruled.refused:
            return WireSettled(answer={**answer, "content": ruled.content} if ruled.kept else answer)
        if ruled.kept:
            removal = Removal(refused=tuple(ruled.refused), kept=keys_of(ruled.kept))
            return WireSettled(answer={**answer, "content": ruled.content}, removals=(removal,))
        blocks, members, removal = ending(ruled.refused, answer, structured)
        ruled.content[ruled.place : ruled.place] = blocks
        return WireSettled(answer={**answer, "content": ruled.content, **members}, removals=(removal,))

    def stream(self, *, structured: bool) -> AnthropicStream:
        """A filter for the events of one message."""
        return AnthropicStream(structured=structured)

    def structured(self, request: Wire) -> bool:
        """Whether an output format was asked for."""
        config = request.get("output_config")
        wanted = config.get("format") if isinstance(config, dict) else None
        return bool(wanted or request.get("output_format"))

    def outputs(self, request: Wire) -> list[ToolOutput]:
        """The `tool_result` blocks of the user's messages."""
        return [
            ToolOutput(
                call_id=text_of(block.get("tool_use_id")),
                value=block.get("content"),
                path=("messages", at, "content", index, "content"),
            )
            for at, message in enumerate(list_of(request.get("messages")))
            if isinstance(message, dict) and message.get("role") == "user"
            for index, block in enumerate(_content(message))
            if isinstance(block, dict) and block.get("type") == "tool_result" and block.get("content") is not None
        ]

    def issued(self, request: Wire) -> list[Proposed]:
        """The tool uses that the messages of a request hold, whoever's they are said to be."""
        return [proposed(block, f"{at}/{index}") for at, index, block in _blocks(request) if is_call(block)]

    def answered(self, request: Wire) -> list[str]:
        """The ids of the calls that a request gives results of."""
        return [
            text_of(block.get("tool_use_id")) for _, _, block in _blocks(request) if block.get("type") == "tool_result"
        ]

    def supplied(self, request: Wire) -> list[SuppliedContent]:
        """The documents and the user's texts that a request brings."""
        return supplied_to_messages(request)

    def with_arguments(self, call: Wire, arguments: dict[str, Any]) -> Wire:
        """A tool use with other input."""
        return {**call, "input": arguments}

    def put_back(self, request: Wire, recall: Recall) -> Wire:
        """The request whose assistant messages hold their refused calls again, each with its result.

        In a thread that the server keeps, it has the calls already and needs only the results.
        """
        recall = WireOnce(recall)
        messages: list[Any] = []
        owing = _owed_to_thread(request, recall)
        changed = bool(owing)
        for message in list_of(request.get("messages")):
            if owing and not _is_from(message, "system"):
                message, before = _answered(message, owing)
                messages += before
                owing = []
            removal = _removal_of(message, recall)
            if removal is None:
                messages.append(message)
                continue
            changed = True
            results = [refusal_of(refused) for refused in removal.refused]
            if removal.kept:
                messages.append({**message, "content": _with_calls(_content(message), removal)})
                owing = results
            else:
                spoken, said = _parted(message, removal)
                messages += [spoken, {"role": "user", "content": results}, said]
        if owing:
            messages.append({"role": "user", "content": owing})
        return {**request, "messages": messages} if changed else request


def _blocks(request: Wire) -> list[tuple[int, int, Wire]]:
    return [
        (at, index, block)
        for at, message in enumerate(list_of(request.get("messages")))
        if isinstance(message, dict)
        for index, block in enumerate(_content(message))
        if isinstance(block, dict)
    ]


def _content(wire: Wire) -> list[Any]:
    return list_of(wire.get("content"))


def _is_from(message: object, role: str) -> bool:
    return isinstance(message, dict) and message.get("role") == role


def _owed_to_thread(request: Wire, recall: Recall) -> list[Wire]:
    thread = request.get("thread")
    if not isinstance(thread, dict) or not list_of(request.get("messages")):
        return []
    removal = recall.by_anchor(text_of(thread.get("previous_message_id")))
    return [] if removal is None else [refusal_of(refused) for refused in removal.refused]


def _answered(message: Any, results: list[Wire]) -> tuple[Any, list[Any]]:
    """The message with the results in front, where it is the user's; otherwise what is to stand before it."""
    if not _is_from(message, "user"):
        return message, [{"role": "user", "content": results}]
    content = message.get("content")
    rest = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    return {**message, "content": [*results, *rest]}, []


def _removal_of(message: object, recall: Recall) -> Removal | None:
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    blocks = [block for block in _content(message) if isinstance(block, dict)]
    for block in blocks:
        if is_call(block) and (found := recall.by_call(call_key(proposed(block, "")))) is not None:
            return found
    return said_in(recall, [message.get("content"), *(block.get("text") for block in blocks)])


def _with_calls(content: list[Any], removal: Removal) -> list[Any]:
    restored = list(content)
    for refused in removal.refused:
        restored.insert(refused.index, refused.call)
    return restored


def _parted(message: Wire, removal: Removal) -> tuple[Wire, Wire]:
    """The message that holds the calls again, and the one that says that they were refused."""
    said = [
        block for block in _content(message) if isinstance(block, dict) and removal.ref in text_of(block.get("text"))
    ]
    rest = [block for block in _content(message) if block not in said]
    spoken = {**message, "content": _with_calls(rest, removal)}
    return spoken, {"role": "assistant", "content": said or message.get("content")}
