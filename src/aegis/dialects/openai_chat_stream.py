"""The chunks of a streamed chat completion, with its calls held back until they are ruled on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aegis.dialects.model import (
    MAX_HELD_BYTES,
    NO_RULING,
    Alike,
    Event,
    Proposed,
    Refused,
    Removal,
    Ruling,
    Step,
    Values,
    Wire,
    list_of,
    text_of,
)
from aegis.dialects.openai_chat_calls import LEGACY, changed_call, ending, keys_of, proposed
from aegis.errors import ForeignAnswer

_DONE: Final = "[DONE]"
_PADDING: Final = "obfuscation"  # of no meaning; hides how long a token is
_OWN: Final = ("choices", "usage", _PADDING)  # of each chunk
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")
_GROWING: Final = ("arguments", "input")


@dataclass(slots=True)
class _Choice:
    """One choice as far as it has streamed: what was said, and the calls that are held back, in parts."""

    text: list[str] = field(default_factory=list)
    calls: dict[int, Wire] = field(default_factory=dict)
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
        self._after: list[Event] = []
        self._held = 0
        self.removals: list[Removal] = []

    @property
    def anchors(self) -> tuple[str, ...]:
        """The completion's id; no conversation is kept under it."""
        return (text_of(self._envelope.get("id")),)

    def feed(self, event: Event, value: Any = None) -> Step:
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

    def settle(self, rulings: Mapping[str, Ruling]) -> list[Event]:
        """The chunks that release the calls which may run, or the text that stands for them."""
        events: list[Event] = []
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
                self._held += size
                if self._held > MAX_HELD_BYTES:
                    raise ForeignAnswer("the calls of the stream are too large")
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
            _merge(state.calls.setdefault(index, {}), {name: value for name, value in part.items() if name != "index"})
        if isinstance(delta.get(LEGACY), dict):
            _merge(state.legacy, delta[LEGACY])

    def _ask(self, positions: list[int], after: list[Event]) -> Step:
        if not positions:
            return Step(events=after)
        self._waiting, self._after = positions, after
        calls: list[Proposed] = [
            proposed(call, key, self.anchors[0])
            for position in positions
            for key, call in self._choices[position].wire_calls(position)
        ]
        return Step(calls=calls)

    def _release(self, position: int, state: _Choice, rulings: Mapping[str, Ruling]) -> list[Event]:
        kept: list[Wire] = []
        refused: list[Refused] = []
        for index, (key, call) in enumerate(state.wire_calls(position)):
            ruling = rulings.get(key, NO_RULING)
            if ruling.allowed:
                kept.append(call if ruling.arguments is None else changed_call(call, ruling.arguments))
            else:
                refused.append(Refused(call=call, call_id=text_of(call.get("id")), index=index, message=ruling.message))
        last = state.last or {"index": position, "delta": {}, "finish_reason": None}
        state.calls, state.legacy, state.last = {}, {}, None
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

    def _delta(self, position: int, delta: Wire) -> Event:
        return self._chunk({"index": position, "delta": delta, "finish_reason": None})

    def _chunk(self, choice: Wire) -> Event:
        return self._event({**self._envelope, "choices": [choice]})

    @staticmethod
    def _event(chunk: Wire) -> Event:
        return Event(data=json.dumps(chunk, separators=(",", ":")))


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
