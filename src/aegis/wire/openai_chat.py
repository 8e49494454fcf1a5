"""OpenAI chat completions: calls in answers, results and refusals in requests."""

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
    Values,
    Wire,
    WireEvent,
    WireOnce,
    WireSettled,
    call_key,
    ended,
    list_of,
    read_arguments,
    said_in,
    text_of,
)
from aegis.wire.supplied import supplied_to_chat

# Tool calls as chat completions spell them, whole or in deltas.

LEGACY: Final = "function_call"


def proposed(call: Wire, key: str, answer_id: str) -> Proposed:
    """The call that a wire call of an answer proposes."""
    if call.get("type") == "custom":
        custom = _member(call, "custom")
        tool, given = text_of(custom.get("name")), custom.get("input")
        arguments, problem = ({"input": given}, "") if isinstance(given, str) else (None, "the input is not text")
    else:
        function = call[LEGACY] if LEGACY in call else _member(call, "function")
        tool = text_of(function.get("name")) if isinstance(function, dict) else ""
        arguments, problem = read_arguments(tool, function.get("arguments") if isinstance(function, dict) else None)
    call_id = text_of(call.get("id"))
    if not tool:
        arguments, problem = None, NO_NAME
    if LEGACY in call and answer_id:
        call_id = f"{answer_id}:{key}"
    return Proposed(key=key, call_id=call_id, tool=tool, arguments=arguments, problem=problem)


def changed_call(call: Wire, arguments: dict[str, Any]) -> Wire:
    """The wire call with other arguments."""
    if call.get("type") == "custom":
        return {**call, "custom": {**_member(call, "custom"), "input": arguments.get("input")}}
    name = LEGACY if LEGACY in call else "function"
    return {**call, name: {**_member(call, name), "arguments": canonical(arguments).decode()}}


def ruled_calls(calls: Iterable[tuple[str, Wire]], rulings: Mapping[str, Ruling]) -> tuple[list[Wire], list[Refused]]:
    """Rule on the calls of a choice, by key: those that stay, and those that were refused."""
    kept: list[Wire] = []
    refused: list[Refused] = []
    for index, (key, call) in enumerate(calls):
        ruling = rulings.get(key, NO_RULING)
        if ruling.allowed:
            kept.append(call if ruling.arguments is None else changed_call(call, ruling.arguments))
        else:
            refused.append(Refused(call=call, call_id=text_of(call.get("id")), index=index, message=ruling.message))
    return kept, refused


def ending(refused: list[Refused], text: str, structured: bool) -> tuple[Wire, Removal]:
    """The message members and the removal of a choice that has no call left."""
    said, removal = ended(refused, text=text)
    if structured:
        return {"content": text or None, "refusal": said}, removal
    return {"content": f"{text}\n\n{said}" if text else said}, removal


def keys_of(kept: Iterable[Wire]) -> tuple[str, ...]:
    """The keys of the calls that stay in an answer."""
    return tuple(call_key(proposed(call, "", "")) for call in kept)


def _member(wire: Wire, name: str) -> Wire:
    value = wire.get(name)
    return value if isinstance(value, dict) else {}


# The chunks of a streamed chat completion, with its calls held back until they are ruled on.

_DONE: Final = "[DONE]"
_PADDING: Final = "obfuscation"  # of no meaning; hides how long a token is
_OWN: Final = ("choices", "usage", _PADDING)  # of each chunk
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")
_GROWING: Final = ("arguments", "input")


class _Choice(Struct):
    """One choice as far as it has streamed: what was said, and the calls that are held back, in parts."""

    text: list[str] = field(default_factory=list)
    calls: dict[int, Wire] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)  # the place of the call that an index of the wire means now
    legacy: Wire = field(default_factory=dict)
    last: Wire | None = None

    def wire_calls(self, position: int) -> list[tuple[str, Wire]]:
        whole = [_joined(self.calls[at]) for at in sorted(self.calls)]
        found = [(f"{position}/{index}", call) for index, call in enumerate(whole)]
        if self.legacy:
            found.append((f"{position}/{LEGACY}", {LEGACY: _joined(self.legacy)}))
        return found


class ChatStream:
    """The filter of one streamed completion.

    A choice's calls are released together when it finishes, before the chunk that finishes it.
    """

    def __init__(self, *, structured: bool) -> None:
        self._structured = structured
        self._choices: dict[int, _Choice] = {}
        self._envelope: Wire = {}
        self._waiting: list[int] = []
        self._after: list[WireEvent] = []
        self._bytes = HeldBytes()
        self.removals: list[Removal] = []

    @property
    def anchors(self) -> tuple[str, ...]:
        """The completion's id; no conversation is kept under it."""
        return (text_of(self._envelope.get("id")),)

    def feed(self, event: WireEvent, value: Any = None) -> Step:
        """Take the next chunk."""
        if not event.data:
            return Step(events=[event])
        if event.data.startswith(_DONE):
            # A server may leave out the reason for which a choice ends.
            open_choices = [at for at, choice in self._choices.items() if choice.calls or choice.legacy]
            return self._ask(open_choices, [event])
        try:
            chunk = json.loads(event.data) if value is None else value
        except ValueError as error:
            raise ForeignAnswer("a chunk of the stream is not JSON") from error
        if not isinstance(chunk, dict) or not isinstance(chunk.get("choices"), list):
            return Step(events=[event])
        self._envelope = {name: value for name, value in chunk.items() if name not in _OWN}
        finished: list[int] = []
        passing: list[Any] = []
        changed = False
        for choice in chunk["choices"]:
            rest = self._take(choice, len(event.data), finished) if isinstance(choice, dict) else choice
            changed = changed or rest is not choice
            if rest is not None:
                passing.append(rest)
        if not changed:
            return Step(events=[event])
        events = [self._event({**chunk, "choices": passing})] if passing or chunk.get("usage") else []
        step = self._ask(finished, [])
        return Step(events=events + step.events, calls=step.calls)

    def alike(self, value: Wire) -> Alike | None:
        """Chunks that add to the text of one choice, of which no call is held back."""
        choices = list_of(value.get("choices"))
        choice = choices[0] if len(choices) == 1 and isinstance(choices[0], dict) else {}
        state = self._choices.get(choice.get("index", 0))
        delta = choice.get("delta")
        if state is None or state.calls or state.legacy or choice.get("finish_reason") or not isinstance(delta, dict):
            return None
        name = next((name for name in _TEXTS if isinstance(delta.get(name), str)), "")
        said = state.text if name == "content" else []

        def passed(values: Values) -> bool:
            said.append(values[name])
            return True

        return Alike(gaps=(("choices", 0, "delta", name), (_PADDING,)), passed=passed) if name else None

    def settle(self, rulings: Mapping[str, Ruling]) -> list[WireEvent]:
        """The chunks that release the calls which may run, or the text that stands for them."""
        events: list[WireEvent] = []
        for position in self._waiting:
            events += self._release(position, self._choices[position], rulings)
        events += self._after
        self._waiting, self._after = [], []
        return events

    def _take(self, choice: Wire, size: int, finished: list[int]) -> Wire | None:
        """What of a choice may pass now; its calls, and the end of a choice with calls, are held back."""
        position = choice.get("index", 0)
        if type(position) is not int:
            raise ForeignAnswer("a choice of the stream has no index")
        state = self._choices.setdefault(position, _Choice())
        delta = choice.get("delta")
        rest = choice
        if isinstance(delta, dict):
            if isinstance(delta.get("content"), str):
                state.text.append(delta["content"])
            if delta.get("tool_calls") or delta.get(LEGACY):
                self._bytes.grow(size)
                self._hold(state, delta)
                kept = {name: value for name, value in delta.items() if name not in ("tool_calls", LEGACY)}
                rest = {**choice, "delta": kept}
        if not (state.calls or state.legacy):
            return rest
        if choice.get("finish_reason"):
            state.last = rest
            finished.append(position)
            return None
        return rest if rest is choice or any(value is not None for value in rest["delta"].values()) else None

    def _hold(self, state: _Choice, delta: Wire) -> None:
        for part in list_of(delta.get("tool_calls")):
            if not isinstance(part, dict):
                raise ForeignAnswer("a call of the stream is not an object")
            index = part.get("index", len(state.calls))
            if type(index) is not int:
                raise ForeignAnswer("a call of the stream has no index")
            # Compatible servers (Ollama) give every call of a turn the same index: another id begins another call.
            place = state.newest.get(index, index)
            named = state.calls.get(place, {}).get("id")
            if named and part.get("id") and part["id"] != named:
                place = state.newest[index] = max(state.calls) + 1
            _merge(state.calls.setdefault(place, {}), {name: value for name, value in part.items() if name != "index"})
        if isinstance(delta.get(LEGACY), dict):
            _merge(state.legacy, delta[LEGACY])

    def _ask(self, positions: list[int], after: list[WireEvent]) -> Step:
        if not positions:
            return Step(events=after)
        self._waiting, self._after = positions, after
        calls: list[Proposed] = [
            proposed(call, key, self.anchors[0])
            for position in positions
            for key, call in self._choices[position].wire_calls(position)
        ]
        return Step(calls=calls)

    def _release(self, position: int, state: _Choice, rulings: Mapping[str, Ruling]) -> list[WireEvent]:
        kept, refused = ruled_calls(state.wire_calls(position), rulings)
        last = state.last or {"index": position, "delta": {}, "finish_reason": None}
        state.calls, state.newest, state.legacy, state.last = {}, {}, {}, None
        if kept:
            if refused:
                self.removals.append(Removal(refused=tuple(refused), kept=keys_of(kept)))
            return [*(self._delta(position, delta) for delta in _deltas(kept)), self._chunk(last)]
        members, removal = ending(refused, "".join(state.text), self._structured)
        self.removals.append(removal)
        # What the model said has already passed: only what stands for the calls is still to be said.
        name = "refusal" if self._structured else "content"
        said = members[name].removeprefix(removal.text)
        return [self._delta(position, {name: said}), self._chunk({**last, "finish_reason": "stop"})]

    def _delta(self, position: int, delta: Wire) -> WireEvent:
        return self._chunk({"index": position, "delta": delta, "finish_reason": None})

    def _chunk(self, choice: Wire) -> WireEvent:
        return self._event({**self._envelope, "choices": [choice]})

    @staticmethod
    def _event(chunk: Wire) -> WireEvent:
        return WireEvent(data=json.dumps(chunk, separators=(",", ":")))


def _deltas(kept: list[Wire]) -> list[Wire]:
    deltas: list[Wire] = []
    for index, call in enumerate(call for call in kept if LEGACY not in call):
        deltas.append({"tool_calls": [{"index": index, **call}]})
    return deltas + [{LEGACY: call[LEGACY]} for call in kept if LEGACY in call]


def _merge(into: Wire, part: Wire) -> None:
    """Add one delta of a call: text grows as a list of its parts, objects merge, the rest is set once."""
    for name, value in part.items():
        if isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        elif name in _GROWING and isinstance(value, str):
            into.setdefault(name, []).append(value)
        elif value is not None and not into.get(name):
            into[name] = value


def _joined(call: Wire) -> Wire:
    """The call that the deltas spell."""
    whole: Wire = {}
    for name, value in call.items():
        if isinstance(value, dict):
            whole[name] = _joined(value)
        else:
            whole[name] = "".join(value) if name in _GROWING and isinstance(value, list) else value
    return whole


class OpenAIChat:
    """The dialect of `POST /chat/completions`."""

    def anchors(self, answer: Wire) -> tuple[str, ...]:
        """The completion's id; no conversation is kept under it."""
        return (text_of(answer.get("id")),)

    def calls(self, answer: Wire) -> list[Proposed]:
        """Function, custom and legacy function calls of every choice."""
        return [
            proposed(call, key, text_of(answer.get("id")))
            for position, choice in enumerate(_choices(answer))
            for key, call in _wire_calls(choice.get("message"), position)
        ]

    def settle(self, answer: Wire, rulings: Mapping[str, Ruling], *, structured: bool) -> WireSettled:
        """The completion without its refused calls; a choice without any call left ends as text."""
        removals: list[Removal] = []
        choices: list[Any] = []
        for position, choice in enumerate(list_of(answer.get("choices"))):
            if isinstance(choice, dict):
                choice, removal = _settle_choice(choice, position, rulings, structured)
                if removal is not None:
                    removals.append(removal)
            choices.append(choice)
        return WireSettled(answer={**answer, "choices": choices} if choices else answer, removals=tuple(removals))

    def stream(self, *, structured: bool) -> ChatStream:
        """A filter for the chunks of one completion."""
        return ChatStream(structured=structured)

    def structured(self, request: Wire) -> bool:
        """Whether a response format other than text was asked for."""
        wanted = request.get("response_format")
        return isinstance(wanted, dict) and wanted.get("type") != "text"

    def outputs(self, request: Wire) -> list[ToolOutput]:
        """The messages of role `tool`."""
        return [
            ToolOutput(
                call_id=text_of(message.get("tool_call_id")),
                value=message.get("content"),
                path=("messages", index, "content"),
            )
            for index, message in enumerate(list_of(request.get("messages")))
            if isinstance(message, dict) and message.get("role") == "tool" and message.get("content") is not None
        ]

    def issued(self, request: Wire) -> list[Proposed]:
        """The calls that the assistant messages of a request hold; a legacy call has no id."""
        return [
            proposed(call, f"{index}/{key}", "")
            for index, message in enumerate(list_of(request.get("messages")))
            if isinstance(message, dict) and (message.get("tool_calls") or message.get(LEGACY))
            for key, call in _wire_calls(message, 0)
        ]

    def answered(self, request: Wire) -> list[str]:
        """The ids of the calls that a request gives results of; a legacy result has none."""
        return [
            text_of(message.get("tool_call_id"))
            for message in list_of(request.get("messages"))
            if isinstance(message, dict) and message.get("role") in ("tool", "function")
        ]

    def supplied(self, request: Wire) -> list[SuppliedContent]:
        """The documents and the user's texts that a request brings."""
        return supplied_to_chat(request)

    def with_arguments(self, call: Wire, arguments: dict[str, Any]) -> Wire:
        """A wire call with other arguments."""
        return changed_call(call, arguments)

    def put_back(self, request: Wire, recall: Recall) -> Wire:
        """The request whose assistant messages hold their refused calls again, each with its tool message."""
        recall = WireOnce(recall)
        messages: list[Any] = []
        pending: list[Any] = []
        changed = False
        for message in list_of(request.get("messages")):
            if pending and not (isinstance(message, dict) and message.get("role") == "tool"):
                messages += pending
                pending = []
            removal = _removal_of(message, recall)
            if removal is None:
                messages.append(message)
                continue
            changed = True
            refusals = [_refusal(refused) for refused in removal.refused]
            if removal.kept:
                messages.append(_with_calls(message, list_of(message.get("tool_calls")), removal))
                pending = refusals
            else:
                messages += [_with_calls(_spoken(message, removal), [], removal), *refusals, _said(message, removal)]
        return {**request, "messages": messages + pending} if changed else request


def _settle_choice(
    choice: Wire, position: int, rulings: Mapping[str, Ruling], structured: bool
) -> tuple[Wire, Removal | None]:
    message = choice.get("message")
    found = _wire_calls(message, position)
    if not found or not isinstance(message, dict):
        return choice, None
    kept, refused = ruled_calls(found, rulings)
    message = {name: value for name, value in message.items() if name not in ("tool_calls", LEGACY)}
    if kept:
        modern = [call for call in kept if LEGACY not in call]
        if modern:
            message["tool_calls"] = modern
        for call in kept:
            if LEGACY in call:
                message[LEGACY] = call[LEGACY]
        removal = Removal(refused=tuple(refused), kept=keys_of(kept)) if refused else None
        return {**choice, "message": message}, removal
    members, removal = ending(refused, text_of(message.get("content")), structured)
    return {**choice, "message": {**message, **members}, "finish_reason": "stop"}, removal


def _choices(answer: Wire) -> list[Wire]:
    return [choice if isinstance(choice, dict) else {} for choice in list_of(answer.get("choices"))]


def _wire_calls(message: object, position: int) -> list[tuple[str, Wire]]:
    if not isinstance(message, dict):
        return []
    given = message.get("tool_calls") or []
    calls = [
        (f"{position}/{index}", call if isinstance(call, dict) else {})
        for index, call in enumerate(given if isinstance(given, list) else [given])
    ]
    legacy = message.get(LEGACY)
    if legacy:
        calls.append((f"{position}/{LEGACY}", {LEGACY: legacy}))
    return calls


def _removal_of(message: object, recall: Recall) -> Removal | None:
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    for key, call in _wire_calls(message, 0):
        if (found := recall.by_call(call_key(proposed(call, key, "")))) is not None:
            return found
    return said_in(recall, (message.get("content"), message.get("refusal")))


def _with_calls(message: Wire, calls: list[Any], removal: Removal) -> Wire:
    restored = list(calls)
    for refused in removal.refused:
        if LEGACY in refused.call:
            message = {**message, LEGACY: refused.call[LEGACY]}
        else:
            restored.insert(refused.index, refused.call)
    return {**message, "tool_calls": restored} if restored else message


def _refusal(refused: Refused) -> Wire:
    if LEGACY in refused.call:
        return {"role": "function", "name": text_of(refused.call[LEGACY].get("name")), "content": refused.message}
    return {"role": "tool", "tool_call_id": refused.call_id, "content": refused.message}


def _spoken(message: Wire, removal: Removal) -> Wire:
    """What the model said beside its calls, as the message that holds them again."""
    bare = {name: value for name, value in message.items() if name not in ("refusal", "tool_calls")}
    return {**bare, "content": removal.text or None}


def _said(message: Wire, removal: Removal) -> Wire:
    """The text with which the answer ended, without what the model had said before."""
    content = message.get("content")
    if removal.text and isinstance(content, str) and content.startswith(removal.text):
        rest = content[len(removal.text) :].lstrip()
        return {**message, "content": rest or None}
    return message
