"""The events of a streamed Anthropic message, with its calls held back until they are ruled on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aegis.core.canonical import canonical
from aegis.dialects.anthropic_blocks import ending, is_call, keys_of, proposed, rule
from aegis.dialects.arguments import read_arguments
from aegis.dialects.model import (
    MAX_HELD_BYTES,
    NO_RULING,
    Alike,
    Event,
    Refused,
    Removal,
    Ruling,
    Step,
    Wire,
    text_of,
)
from aegis.errors import ForeignAnswer

_TEXTS: Final = {"text_delta": "text", "thinking_delta": "thinking"}


@dataclass(slots=True)
class _Held:
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
        self._size = 0
        self._seen = 0
        self._next = 0
        self._places: dict[int, int] = {}
        self._kept: list[Wire] = []
        self._refused: list[Refused] = []
        self._waiting: Wire | None = None
        self._done = False
        self.anchors: tuple[str, ...] = ("",)
        self.removals: list[Removal] = []

    def feed(self, event: Event, value: Any = None) -> Step:
        """Take the next event."""
        if not event.data:
            return Step(events=[event])
        try:
            wire = json.loads(event.data) if value is None else value
        except ValueError as error:
            raise ForeignAnswer("an event of the stream is not JSON") from error
        if not isinstance(wire, dict):
            raise ForeignAnswer("an event of the stream is not an object")
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

    def settle(self, rulings: Mapping[str, Ruling]) -> list[Event]:
        """The events that release the calls which may run, and the event that waited for them."""
        events: list[Event] = []
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
        self._grow(size)

    def _hold_event(self, held: _Held, kind: str, wire: Wire, size: int) -> None:
        held.events.append(wire)
        held.stopped = held.stopped or kind == "content_block_stop"
        self._grow(size)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MAX_HELD_BYTES:
            raise ForeignAnswer("the calls of the stream are too large")

    @staticmethod
    def _index(wire: Wire) -> int:
        index = wire.get("index")
        if type(index) is not int:
            raise ForeignAnswer("a block of the stream has no index")
        return index

    def _ask(self, kind: str, wire: Wire, event: Event) -> Step:
        # A block that never stopped was cut off: it is not a call, and is not passed on.
        self._held = {index: held for index, held in self._held.items() if held.stopped}
        if not self._held:
            return Step(events=self._resumed(kind, wire, event))
        self._waiting = {**wire, "type": kind}
        return Step(calls=[proposed(held.block(), str(held.index)) for held in self._held.values()])

    def _resumed(self, kind: str, wire: Wire, event: Event | None = None) -> list[Event]:
        """The event that ends a run of calls; before the end of the message, what stands for refused ones."""
        if kind == "content_block_start":
            index = self._index(wire)
            if index in self._places:
                raise ForeignAnswer("two blocks of the stream have the same index")
            self._places[index], self._next = self._next, self._next + 1
        elif kind == "message_delta" and self._refused and not self._done:
            return self._ended(wire)
        return [self._placed(kind, wire, event)]

    def _ended(self, wire: Wire) -> list[Event]:
        self._done = True
        if self._kept:
            self.removals.append(Removal(refused=tuple(self._refused), kept=keys_of(self._kept)))
            return [_event(wire)]
        delta = wire.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        blocks, members, removal = ending(self._refused, delta, self._structured)
        self.removals.append(removal)
        events: list[Event] = []
        for block in blocks:
            place, self._next = self._next, self._next + 1
            text = {"type": "text_delta", "text": block["text"]}
            events += [
                _event({"type": "content_block_start", "index": place, "content_block": {**block, "text": ""}}),
                _event({"type": "content_block_delta", "index": place, "delta": text}),
                _event({"type": "content_block_stop", "index": place}),
            ]
        return [*events, _event({**wire, "delta": {**delta, **members}})]

    def _released(self, held: _Held, ruled: Wire, *, changed: bool) -> list[Event]:
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

    def _placed(self, kind: str, wire: Wire, event: Event | None) -> Event:
        """The event with the index that its block has after the filter; the original where that is the same."""
        if kind.startswith("content_block_"):
            place = self._places.get(self._index(wire))
            if place is None:
                raise ForeignAnswer("an event of the stream belongs to no block")
            if place != wire["index"]:
                return _event({**wire, "index": place})
        return event if event is not None else _event(wire)


def _event(wire: Wire) -> Event:
    return Event(event=text_of(wire.get("type")), data=json.dumps(wire, separators=(",", ":")))
