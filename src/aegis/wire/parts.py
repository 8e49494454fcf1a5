"""The block model: conversations whose messages are lists of parts, each a text, a call, a result, or something else.

Gemini and Bedrock Converse are written so; Ollama is read so (`wire/ollama.py`). What is decided, taken out, put back
and brought along is said here once; a dialect names its members and says how an answer ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from msgspec import Struct, structs

from aegis.errors import ForeignAnswer
from aegis.wire.model import (
    NO_NAME,
    NO_RULING,
    Alike,
    HeldBytes,
    Path,
    Proposed,
    Recall,
    Refused,
    Removal,
    Ruling,
    Step,
    StreamFilter,
    SuppliedContent,
    ToolOutput,
    Wire,
    WireEvent,
    WireOnce,
    WireSettled,
    call_identities,
    call_key,
    event_object,
    list_of,
    marked,
    new_ref,
    read_arguments,
    said_in,
    text_of,
)

# A call whose arguments come in pieces beside it (Gemini's streamed function calls): it would be decided without them.
_PARTIAL = frozenset({"partialArgs", "partial_args", "willContinue", "will_continue"})


class Names(Struct, frozen=True, kw_only=True):
    """What a format calls its members."""

    messages: str
    parts: str
    assistant: str
    call: str
    call_id: str
    arguments: str
    result: str
    value: str


class Answers(Protocol):
    """Where a format keeps the messages of an answer, and how an answer ends that has no call left."""

    def messages(self, answer: Wire) -> list[Wire]:
        """The messages of an answer: one, or one for each candidate."""
        ...

    def with_message(self, answer: Wire, at: int, message: Wire, *, ended: bool) -> Wire:
        """The answer with another message in its place."""
        ...

    def refusal(self, call: Wire, message: str) -> Wire:
        """The result part that tells the model of a refusal."""
        ...

    def answer_id(self, answer: Wire) -> str:
        """The answer's own id, if it has one."""
        ...

    def supplied(self, part: Wire, path: Path) -> Iterator[SuppliedContent]:
        """What a part brings for the model to read; the text of a user's part included."""
        ...

    def places(self, event: Wire) -> list[int]:
        """Which message of a streamed answer each message of an event adds to."""
        ...

    def is_last(self, event: Wire, at: int) -> bool:
        """Whether an event of a stream ends the message at this place of the event."""
        ...


class PartsStream:
    """The events of a streamed answer, each an answer with some of the parts: texts pass, calls wait for the end.

    The calls of a message are ruled on together in the event that ends it, as if they had all come there.
    """

    def __init__(self, dialect: PartsDialect) -> None:
        self._dialect = dialect
        self._held: dict[int, list[Wire]] = {}
        self._bytes = HeldBytes()
        self._waiting: Wire | None = None
        self.anchors: tuple[str, ...] = ("",)
        self.removals: list[Removal] = []

    def feed(self, event: WireEvent, value: Any = None) -> Step:
        """Take the next event."""
        if not event.data:
            return Step(events=[event])
        wire = event_object(event, value)
        if (anchors := self._dialect.anchors(wire))[0]:
            self.anchors = anchors
        rest, calls = self._dialect.without_calls(wire)
        if any(calls.values()):
            self._bytes.grow(len(event.data))
        for place, found in calls.items():
            self._held.setdefault(place, []).extend(found)
        ended = [place for place in self._dialect.ended_in(wire) if self._held.get(place)]
        if not ended:
            unchanged = not any(calls.values())
            return Step(events=[event if unchanged else WireEvent(data=json.dumps(rest), event=event.event)])
        whole = self._dialect.with_calls(rest, {place: self._held.pop(place) for place in ended})
        self._waiting = whole
        return Step(calls=self._dialect.calls(whole))

    def settle(self, rulings: Mapping[str, Ruling]) -> list[WireEvent]:
        """The event that ends the message, with the calls that may run."""
        if self._waiting is None:
            return []
        settled = self._dialect.settle(self._waiting, rulings, structured=False)
        self._waiting = None
        self.removals += settled.removals
        return [WireEvent(data=json.dumps(settled.answer))]

    def alike(self, value: Wire) -> Alike | None:
        """Nothing: every event is read."""
        return None


class PartsDialect:
    """A format of this family. Its events are whole answers with some of the parts, or are assembled to one."""

    def __init__(self, names: Names, answers: Answers) -> None:
        self._names = names
        self._answers = answers

    def anchors(self, answer: Wire) -> tuple[str, ...]:
        """The answer's id; no conversation is kept under it."""
        return (self._answers.answer_id(answer),)

    def calls(self, answer: Wire) -> list[Proposed]:
        """Every part that the agent's side executes."""
        return [
            self._proposed(part, f"{at}/{index}", identity)
            for at, message in enumerate(self._answers.messages(answer))
            for index, part, identity in self._calls_in(message)
        ]

    def settle(self, answer: Wire, rulings: Mapping[str, Ruling], *, structured: bool) -> WireSettled:
        """The answer without its refused calls; a message without any call left ends as text."""
        removals: list[Removal] = []
        for at, message in enumerate(self._answers.messages(answer)):
            calls = {index: identity for index, _, identity in self._calls_in(message)}
            if not calls:
                continue
            parts: list[Any] = []
            kept: list[str] = []
            refused: list[Refused] = []
            for index, part in enumerate(self._parts(message)):
                ruling = rulings.get(f"{at}/{index}", NO_RULING) if index in calls else None
                if ruling is None:
                    parts.append(part)
                elif ruling.allowed:
                    part = part if ruling.arguments is None else self._changed(part, ruling.arguments)
                    kept.append(call_key(self._proposed(part, "", "")))
                    parts.append(part)
                else:
                    refused.append(Refused(call=part, call_id=calls[index], index=index, message=ruling.message))
            ref = "" if kept else new_ref()
            if refused and not kept:
                said = "\n".join(one.message for one in refused)
                parts.append({"text": marked(said, ref)})
            message = {**message, self._names.parts: parts}
            answer = self._answers.with_message(answer, at, message, ended=not kept)
            if refused:
                removals.append(Removal(refused=tuple(refused), kept=tuple(kept), ref=ref))
        return WireSettled(answer=answer, removals=tuple(removals))

    def structured(self, request: Wire) -> bool:
        """Never: these formats have one place for text."""
        return False

    def stream(self, *, structured: bool) -> StreamFilter:
        """A filter for the events of one answer."""
        return PartsStream(self)

    def issued(self, request: Wire) -> list[Proposed]:
        """The calls that the conversation of a request holds, whoever's they are said to be."""
        found: list[Proposed] = []
        for at, message in enumerate(list_of(request.get(self._names.messages))):
            calls = list(self._calls_in(message)) if isinstance(message, dict) else []
            names = self._unnamed(part for _, part, _ in calls)
            found += [
                self._proposed(part, f"{at}/{index}", identity, unnamed)
                for (index, part, identity), unnamed in zip(calls, names, strict=True)
            ]
        return found

    def answered(self, request: Wire) -> list[str]:
        """The calls that a request gives results of."""
        return [identity for _, _, _, identity in self._results(request)]

    def supplied(self, request: Wire) -> list[SuppliedContent]:
        """The documents and the user's texts that a request brings."""
        found: list[SuppliedContent] = []
        for at, message in enumerate(list_of(request.get(self._names.messages))):
            if isinstance(message, dict) and message.get("role") != self._names.assistant:
                for index, part in enumerate(self._parts(message)):
                    if isinstance(part, dict):
                        found += self._answers.supplied(part, (self._names.messages, at, self._names.parts, index))
        return found

    def with_arguments(self, call: Wire, arguments: dict[str, Any]) -> Wire:
        """A call part with other arguments."""
        return self._changed(call, arguments)

    def without_calls(self, event: Wire) -> tuple[Wire, dict[int, list[Wire]]]:
        """An event of a stream without its calls, and those, by the message of the answer that they belong to."""
        calls: dict[int, list[Wire]] = {}
        messages = self._answers.messages(event)
        for at, (message, place) in enumerate(zip(messages, self._answers.places(event), strict=True)):
            found = [part for _, part, _ in self._calls_in(message)]
            if any(_inside(part, self._names.call).keys() & _PARTIAL for part in found):
                raise ForeignAnswer("the arguments of a call come in pieces")
            if found:
                left = [part for part in self._parts(message) if not any(part is one for one in found)]
                event = self._answers.with_message(event, at, {**message, self._names.parts: left}, ended=False)
                calls.setdefault(place, []).extend(found)
        return event, calls

    def ended_in(self, event: Wire) -> list[int]:
        """The messages of the answer that an event of its stream ends."""
        return [place for at, place in enumerate(self._answers.places(event)) if self._answers.is_last(event, at)]

    def with_calls(self, event: Wire, calls: Mapping[int, list[Wire]]) -> Wire:
        """An event of a stream with calls in its messages."""
        messages = self._answers.messages(event)
        for at, (message, place) in enumerate(zip(messages, self._answers.places(event), strict=True)):
            if place in calls:
                parts = [*self._parts(message), *calls[place]]
                whole = {"role": self._names.assistant, **message, self._names.parts: parts}
                event = self._answers.with_message(event, at, whole, ended=False)
        return event

    def _results(self, request: Wire) -> Iterator[tuple[int, int, Wire, str]]:
        """The result parts of a request: where each stands, and by what the call is known that it answers."""
        owed: list[tuple[str, str]] = []
        for at, message in enumerate(list_of(request.get(self._names.messages))):
            if not isinstance(message, dict):
                continue
            if message.get("role") == self._names.assistant:
                owed = [(identity, text_of(_inside(part, self._names.call).get("name")))
                        for _, part, identity in self._calls_in(message)]  # fmt: skip
            for index, part in enumerate(self._parts(message)):
                result = _inside(part, self._names.result)
                if result:
                    yield at, index, result, self._answered(result, owed)

    def outputs(self, request: Wire) -> list[ToolOutput]:
        """The result parts, each with the identity of the call that it answers."""
        found: list[ToolOutput] = []
        for at, index, result, identity in self._results(request):
            if self._names.value in result:
                value, inner = _innermost(result[self._names.value])
                path = (self._names.messages, at, self._names.parts, index, self._names.result, self._names.value)
                found.append(ToolOutput(call_id=identity, value=value, path=(*path, *inner), parts=True))
        return found

    def put_back(self, request: Wire, recall: Recall) -> Wire:
        """The request whose answers hold their refused calls again, each with its result."""
        recall = WireOnce(recall)
        messages: list[Any] = []
        owing: list[Wire] = []
        changed = False
        for message in list_of(request.get(self._names.messages)):
            if owing and isinstance(message, dict):
                if message.get("role") == self._names.assistant:
                    messages.append({"role": "user", self._names.parts: owing})
                else:
                    message = {**message, self._names.parts: [*owing, *self._parts(message)]}
                owing = []
            removal = self._removal_of(message, recall)
            if removal is None:
                messages.append(message)
                continue
            changed = True
            results = [self._answers.refusal(one.call, one.message) for one in removal.refused]
            parts = self._parts(message)
            said = [part for part in parts if removal.ref and removal.ref in text_of(_text(part))]
            restored = [part for part in parts if part not in said]
            for refused in removal.refused:
                restored.insert(refused.index, refused.call)
            messages.append({**message, self._names.parts: restored})
            if said:
                user, spoken = {"role": "user", self._names.parts: results}, {**message, self._names.parts: said}
                messages += [user, spoken]
            else:
                owing = results
        if owing:
            messages.append({"role": "user", self._names.parts: owing})
        return {**request, self._names.messages: messages} if changed else request

    def _parts(self, message: Wire) -> list[Any]:
        return list_of(message.get(self._names.parts))

    def _calls_in(self, message: Wire) -> Iterator[tuple[int, Wire, str]]:
        """Every call of a message: its place, its part, and by what it is known where it has no id."""
        found = [
            (index, part, call)
            for index, part in enumerate(self._parts(message))
            if (call := _inside(part, self._names.call))
        ]
        nameless = [call for _, _, call in found if not text_of(call.get(self._names.call_id))]
        derived = iter(call_identities((one.get("name"), one.get(self._names.arguments)) for one in nameless))
        for index, part, call in found:
            yield index, part, text_of(call.get(self._names.call_id)) or next(derived)

    def _unnamed(self, parts: Iterable[Wire]) -> list[str]:
        """By what the calls of a message would be known if none of them had an id."""
        calls = [_inside(part, self._names.call) for part in parts]
        return call_identities((one.get("name"), one.get(self._names.arguments)) for one in calls)

    def _proposed(self, part: Wire, key: str, identity: str, unnamed: str = "") -> Proposed:
        call = _inside(part, self._names.call)
        tool = text_of(call.get("name"))
        # A call without arguments may come without the member.
        arguments, problem = read_arguments(tool, call.get(self._names.arguments, {}))
        if not tool:
            arguments, problem = None, NO_NAME
        own = text_of(call.get(self._names.call_id))
        found = identity or own or call_identities([(tool, arguments)])[0]
        return Proposed(
            key=key, call_id=found, tool=tool, arguments=arguments, problem=problem, derived=not own, unnamed=unnamed
        )

    def _changed(self, part: Wire, arguments: dict[str, Any]) -> Wire:
        return {**part, self._names.call: {**part[self._names.call], self._names.arguments: arguments}}

    def _answered(self, result: Wire, owed: list[tuple[str, str]]) -> str:
        """The call that a result answers: by its id, else the first open one of its name."""
        identity = text_of(result.get(self._names.call_id))
        if identity:
            return identity
        for one in owed:
            if one[1] == result.get("name"):
                owed.remove(one)
                return one[0]
        return ""

    def _removal_of(self, message: object, recall: Recall) -> Removal | None:
        if not isinstance(message, dict) or message.get("role") != self._names.assistant:
            return None
        for _, part, _ in self._calls_in(message):
            call = self._proposed(part, "", "")
            for one in (call, structs.replace(call, call_id=self._unnamed([part])[0])):
                if (found := recall.by_call(call_key(one))) is not None:
                    return found
        return said_in(recall, (_text(part) for part in self._parts(message)))


def _innermost(value: Any) -> tuple[Any, tuple[str | int, ...]]:
    """What a tool gave, without the one object or part that is only there to hold it, and the way to it."""
    if isinstance(value, dict) and value.keys() == {"result"}:
        return value["result"], ("result",)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) and value[0].keys() == {"text"}:
        return value[0]["text"], (0, "text")
    return value, ()


def _inside(part: object, name: str) -> Wire:
    found = part.get(name) if isinstance(part, dict) else None
    return found if isinstance(found, dict) else {}


def _text(part: object) -> object:
    return part.get("text") if isinstance(part, dict) else None
