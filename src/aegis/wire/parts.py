"""Conversations whose messages are lists of parts, one of them a call or a result: Gemini and Bedrock Converse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aegis.core.canonical import canonical, sha256
from aegis.errors import InvalidCall
from aegis.wire.model import (
    NO_NAME,
    NO_RULING,
    Proposed,
    Recall,
    Refused,
    Removal,
    Ruling,
    ToolOutput,
    Wire,
    WireOnce,
    WireSettled,
    call_key,
    list_of,
    marked,
    new_ref,
    read_arguments,
    said_in,
    text_of,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
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


class PartsDialect:
    """A format of this family, whole answers only: their streams are made of such answers or assembled to one."""

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
            calls = {index: part for index, part, _ in self._calls_in(message)}
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
                    refused.append(Refused(call=part, call_id="", index=index, message=ruling.message))
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

    def outputs(self, request: Wire) -> list[ToolOutput]:
        """The result parts, each with the identity of the call that it answers."""
        found: list[ToolOutput] = []
        owed: list[tuple[str, str]] = []
        for at, message in enumerate(list_of(request.get(self._names.messages))):
            if not isinstance(message, dict):
                continue
            if message.get("role") == self._names.assistant:
                owed = [(identity, text_of(_inside(part, self._names.call).get("name")))
                        for _, part, identity in self._calls_in(message)]  # fmt: skip
            for index, part in enumerate(self._parts(message)):
                result = _inside(part, self._names.result)
                if self._names.value in result:
                    identity = self._answered(result, owed)
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
        seen: dict[str, int] = {}
        for index, part in enumerate(self._parts(message)):
            call = _inside(part, self._names.call)
            if not call:
                continue
            identity = text_of(call.get(self._names.call_id))
            if not identity:
                digest = _digest(call.get("name"), call.get(self._names.arguments))
                seen[digest] = seen.get(digest, 0) + 1
                identity = f"{digest}.{seen[digest]}" if digest else ""
            yield index, part, identity

    def _proposed(self, part: Wire, key: str, identity: str) -> Proposed:
        call = _inside(part, self._names.call)
        tool = text_of(call.get("name"))
        # A call without arguments may come without the member.
        arguments, problem = read_arguments(tool, call.get(self._names.arguments, {}))
        if not tool:
            arguments, problem = None, NO_NAME
        found = identity or text_of(call.get(self._names.call_id)) or _digest(tool, arguments)
        return Proposed(key=key, call_id=found, tool=tool, arguments=arguments, problem=problem)

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
            if (found := recall.by_call(call_key(self._proposed(part, "", "")))) is not None:
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


def _digest(tool: object, arguments: object) -> str:
    """The identity of a call that has no id: longer than any that a server counts."""
    try:
        return sha256(canonical([tool, arguments or {}]))
    except InvalidCall:
        return ""
