"""The OpenAI Responses API: calls in answers, results and refusals in requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from msgspec import Struct, field

from aegis.errors import ForeignAnswer
from aegis.wire.model import (
    NO_RULING,
    Alike,
    HeldBytes,
    Proposed,
    Recall,
    Removal,
    Ruling,
    Step,
    SuppliedContent,
    ToolOutput,
    Values,
    Wire,
    WireEvent,
    WireOnce,
    WireSettled,
    call_key,
    ended,
    event_object,
    list_of,
    ruled_blocks,
    said_in,
    text_of,
)
from aegis.wire.openai_items import (
    answers,
    changed,
    conversation_anchor,
    final_message,
    is_call,
    item_id,
    keys_of,
    proposed,
    rule,
)
from aegis.wire.supplied import supplied_to_responses

# The events of a streamed response, with its calls held back until they are ruled on.

_SNAPSHOTS: Final = ("response.created", "response.queued", "response.in_progress")
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")


class _Whole(Protocol):
    """The dialect of whole responses, as far as the last event of a stream needs it."""

    def anchors(self, answer: Wire) -> tuple[str, ...]: ...

    def settle(self, answer: Wire, rulings: Mapping[str, Ruling], *, structured: bool) -> WireSettled: ...


class _Held(Struct):
    """One output item that is held back: its events so far, and the whole item once it is done."""

    events: list[Wire] = field(default_factory=list)
    item: Wire | None = None


class ResponsesStream:
    """The filter of one streamed response.

    Items that are calls are released together when the response ends, before the event that ends
    it; sequence numbers keep rising. A response that names another call at its end than it streamed
    is refused whole.
    """

    def __init__(self, whole: _Whole, *, structured: bool) -> None:
        self._whole = whole
        self._structured = structured
        self._held: dict[int, _Held] = {}
        self._bytes = HeldBytes()
        self._number = -1
        self._end: Wire | None = None
        self._answer: Wire = {}
        self._asked: dict[str, str] = {}
        self.anchors: tuple[str, ...] = ()
        self.removals: tuple[Removal, ...] = ()

    def feed(self, event: WireEvent, value: Any = None) -> Step:
        """Take the next event."""
        if not event.data or event.data.startswith("[DONE]"):
            return Step(events=[event])
        wire = event_object(event, value)
        kind = text_of(wire.get("type")) or event.event
        response = wire.get("response")
        if kind in _ENDS and isinstance(response, dict):
            return self._finish(wire, response, event)
        if kind in _SNAPSHOTS and isinstance(response, dict):
            self.anchors = self._whole.anchors(response)
            output = response.get("output")
            if isinstance(output, list) and any(is_call(item) for item in output):
                rest = [item for item in output if not is_call(item)]
                return Step(events=[self._numbered({**wire, "response": {**response, "output": rest}})])
        elif self._hold(kind, wire, len(event.data)):
            return Step()
        return Step(events=[self._numbered(wire, event)])

    def alike(self, value: Wire) -> Alike | None:
        """Events that add to a text, with a number above all that went before."""
        if not text_of(value.get("type")).endswith(".delta") or "item" in value or "response" in value:
            return None
        if type(value.get("sequence_number")) is not int:
            return None
        return Alike(gaps=(("sequence_number",), ("delta",), ("obfuscation",)), passed=self._passed)

    def _passed(self, values: Values) -> bool:
        rises: bool = values["sequence_number"] > self._number
        if rises:
            self._number = values["sequence_number"]
        return rises

    def settle(self, rulings: Mapping[str, Ruling]) -> list[WireEvent]:
        """The events that release the calls which may run, or the message that stands for them, and the end."""
        if self._end is None:
            return []
        end = self._end
        by_id = {self._asked[key]: ruling for key, ruling in rulings.items() if key in self._asked}
        events: list[WireEvent] = []
        for place in sorted(self._held):
            held = self._held[place]
            if held.item is not None:
                ruled = rule(held.item, place, by_id.get(item_id(held.item), NO_RULING))
                if isinstance(ruled, dict):
                    events += self._released(held, ruled, changed=ruled is not held.item)
        place = min(self._held, default=0)
        self._held, self._end = {}, None
        settled = self._whole.settle(self._answer, _by_place(self._answer, by_id), structured=self._structured)
        self.removals = settled.removals
        for removal in settled.removals:
            if not removal.kept:
                message = next(item for item in settled.answer["output"] if item.get("id") == f"msg_{removal.ref}")
                events += [self._numbered(wire) for wire in _spoken(message, place)]
        if isinstance(end["response"].get("output"), list):
            end = {**end, "response": settled.answer}
        return [*events, self._numbered(end)]

    def _hold(self, kind: str, wire: Wire, size: int) -> bool:
        """Whether the event belongs to a call; then it is kept."""
        place, item = wire.get("output_index"), wire.get("item")
        if type(place) is not int:
            return False
        if is_call(item):
            held = self._held.setdefault(place, _Held())
            if kind == "response.output_item.done":
                held.item = item
        elif place not in self._held:
            return False
        self._bytes.grow(size)
        self._held[place].events.append(wire)
        return True

    def _finish(self, wire: Wire, response: Wire, event: WireEvent) -> Step:
        self.anchors = self._whole.anchors(response)
        streamed = {item_id(held.item): held.item for held in self._held.values() if held.item is not None}
        output = response.get("output")
        listed: list[Any] = output if isinstance(output, list) else []
        calls = [item for item in listed if is_call(item)]
        for item in calls:
            known = streamed.pop(item_id(item), None)
            if known is not None and _substance(known) != _substance(item):
                raise ForeignAnswer("a call differs from the one that was streamed")
        calls += streamed.values()
        if not calls:
            return Step(events=[self._numbered(wire, event)])
        if len({item_id(item) for item in calls}) != len(calls):
            raise ForeignAnswer("two calls of the response have the same id")
        self._end = wire
        self._answer = {**response, "output": [*listed, *streamed.values()]}
        self._asked = {str(number): item_id(item) for number, item in enumerate(calls)}
        return Step(calls=[proposed(item, str(number)) for number, item in enumerate(calls)])

    def _released(self, held: _Held, ruled: Wire, *, changed: bool) -> list[WireEvent]:
        if not changed:
            return [self._numbered(wire) for wire in held.events]
        first, last = held.events[0], held.events[-1]
        events: list[Wire] = []
        if first.get("type") == "response.output_item.added":
            events.append({**first, "item": {**ruled, "status": "in_progress"}})
        if ruled.get("type") == "function_call" and events:
            place = {"output_index": last.get("output_index"), "item_id": ruled.get("id")}
            given = ruled["arguments"]
            events[0]["item"]["arguments"] = ""
            events.append({"type": "response.function_call_arguments.delta", **place, "delta": given})
            events.append({"type": "response.function_call_arguments.done", **place, "arguments": given})
        events.append({**last, "item": ruled})
        return [self._numbered(wire) for wire in events]

    def _numbered(self, wire: Wire, original: WireEvent | None = None) -> WireEvent:
        """The event with a number above all that went before it; the original where nothing is to be changed."""
        number = wire.get("sequence_number", self._number + 1)
        rising = max(number, self._number + 1) if type(number) is int else self._number + 1
        self._number = rising
        if original is not None and (rising == number or "sequence_number" not in wire):
            return original
        return WireEvent(
            event=text_of(wire.get("type")),
            data=json.dumps({**wire, "sequence_number": rising}, separators=(",", ":")),
        )


def _substance(item: Wire) -> tuple[object, ...]:
    """What of a call would be executed."""
    call = proposed(item, "")
    key = call_key(call)
    return call.tool, call.server, key, None if key else item.get("arguments")


def _by_place(response: Wire, by_id: Mapping[str, Ruling]) -> dict[str, Ruling]:
    return {
        str(index): by_id.get(item_id(item), NO_RULING)
        for index, item in enumerate(response["output"])
        if is_call(item)
    }


def _spoken(message: Wire, place: int) -> list[Wire]:
    """The events by which a final message is streamed."""
    (part,) = message["content"]
    name = "refusal" if part["type"] == "refusal" else "text"
    prefix = "response.refusal" if name == "refusal" else "response.output_text"
    at: dict[str, Any] = {"item_id": message["id"], "output_index": place, "content_index": 0}
    extra: dict[str, Any] = {"logprobs": []} if name == "text" else {}
    return [
        {"type": "response.output_item.added", "output_index": place,
         "item": {**message, "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", **at, "part": {**part, name: ""}},
        {"type": f"{prefix}.delta", **at, "delta": part[name], **extra},
        {"type": f"{prefix}.done", **at, name: part[name], **extra},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": place, "item": message},
    ]  # fmt: skip


_OUTPUTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output",
     "apply_patch_call_output"}
)  # fmt: skip


class OpenAIResponses:
    """The dialect of `POST /responses`."""

    def anchors(self, answer: Wire) -> tuple[str, ...]:
        """The response's id, and the conversation that the provider keeps, if it does."""
        return text_of(answer.get("id")), *conversation_anchor(answer)

    def calls(self, answer: Wire) -> list[Proposed]:
        """Every output item that the agent's side executes."""
        return [proposed(item, str(index)) for index, item in enumerate(list_of(answer.get("output"))) if is_call(item)]

    def settle(self, answer: Wire, rulings: Mapping[str, Ruling], *, structured: bool) -> WireSettled:
        """The response without its refused calls; where no call is left it ends with a message."""
        ruled = ruled_blocks(list_of(answer.get("output")), rulings, is_call, rule)
        if not ruled.refused:
            return WireSettled(answer={**answer, "output": ruled.content} if ruled.kept else answer)
        if ruled.kept:
            removal = Removal(refused=tuple(ruled.refused), kept=keys_of(ruled.kept))
        else:
            said, removal = ended(ruled.refused)
            ruled.content.insert(ruled.place, final_message(said, removal.ref, structured))
        return WireSettled(answer={**answer, "output": ruled.content}, removals=(removal,))

    def stream(self, *, structured: bool) -> ResponsesStream:
        """A filter for the events of one response."""
        return ResponsesStream(self, structured=structured)

    def structured(self, request: Wire) -> bool:
        """Whether a text format other than plain text was asked for."""
        text = request.get("text")
        wanted = text.get("format") if isinstance(text, dict) else None
        return isinstance(wanted, dict) and wanted.get("type") != "text"

    def outputs(self, request: Wire) -> list[ToolOutput]:
        """The outputs of calls among the input items."""
        return [
            ToolOutput(
                call_id=item_id(item),
                value=item.get("output"),
                path=("input", index, "output"),
                shell=item.get("type") == "shell_call_output",
            )
            for index, item in enumerate(list_of(request.get("input")))
            if isinstance(item, dict) and item.get("type") in _OUTPUTS and item.get("output") is not None
        ]

    def issued(self, request: Wire) -> list[Proposed]:
        """The calls among the input items."""
        return [proposed(item, str(index)) for index, item in enumerate(list_of(request.get("input"))) if is_call(item)]

    def answered(self, request: Wire) -> list[str]:
        """The ids of the calls that a request gives outputs of, or approves at the provider."""
        items = [item for item in list_of(request.get("input")) if isinstance(item, dict)]
        hosted = {item_id(item) for item in items if text_of(item.get("type")).endswith("_call") and not is_call(item)}
        outputs = [
            item_id(item)
            for item in items
            if text_of(item.get("type")).endswith("_output")
            and item.get("execution") != "server"
            and item_id(item) not in hosted
        ]
        return outputs + [
            text_of(item.get("approval_request_id"))
            for item in items
            if item.get("type") == "mcp_approval_response" and item.get("approve") is not False
        ]

    def supplied(self, request: Wire) -> list[SuppliedContent]:
        """The documents and the user's texts that a request brings."""
        return supplied_to_responses(request)

    def with_arguments(self, call: Wire, arguments: dict[str, Any]) -> Wire:
        """An item with other arguments; of a kind whose arguments are fixed, what names it alone."""
        given = changed(call, arguments)
        return {name: call[name] for name in ("type", "id", "call_id") if name in call} if given is None else given

    def put_back(self, request: Wire, recall: Recall) -> Wire:
        """The request whose input holds the refused calls and their refusals again.

        Where the provider keeps the earlier answer, it has the calls already and needs only the answers.
        """
        recall = WireOnce(recall)
        items: list[Any] = []
        pending: list[Wire] = []
        changed = False
        for item in list_of(request.get("input")):
            if pending and not is_call(item):
                items += pending
                pending = []
            removal = _removal_of(item, recall)
            if removal is None:
                items.append(item)
                continue
            changed = True
            pairs = [answers(refused) for refused in removal.refused]
            if removal.kept:
                items += [*(call for pair in pairs for call in pair[:1]), item]
                pending = [answer for pair in pairs for answer in pair[1:]]
            else:
                items += [*(part for pair in pairs for part in pair), {"role": "assistant", "content": _said(item)}]
        owed = [recall.by_anchor(anchor) for anchor in _continued(request)]
        owing = [part for removal in owed if removal for refused in removal.refused for part in answers(refused)[1:]]
        if not changed and not owing:
            return request
        if isinstance(request.get("input"), str):
            items = [{"role": "user", "content": request["input"]}]
        return {**request, "input": owing + items + pending}


def _continued(request: Wire) -> tuple[str, ...]:
    return text_of(request.get("previous_response_id")), *conversation_anchor(request)


def _removal_of(item: object, recall: Recall) -> Removal | None:
    if not isinstance(item, dict):
        return None
    if is_call(item):
        return recall.by_call(call_key(proposed(item, "")))
    return said_in(recall, _texts(item)) if item.get("role") == "assistant" else None


def _texts(item: Wire) -> list[object]:
    content = item.get("content")
    if not isinstance(content, list):
        return [content]
    parts = [part for part in content if isinstance(part, dict)]
    return [part.get(name) for part in parts for name in ("text", "refusal")]


def _said(item: Wire) -> str:
    return "".join(text for text in _texts(item) if isinstance(text, str))
