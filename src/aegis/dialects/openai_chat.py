"""OpenAI chat completions: calls in answers, results and refusals in requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aegis.dialects.brought import Brought, brought_to_chat
from aegis.dialects.model import (
    NO_RULING,
    Once,
    Proposed,
    Recall,
    Refused,
    Removal,
    Ruling,
    Settled,
    ToolOutput,
    Wire,
    call_key,
    list_of,
    said_in,
    text_of,
)
from aegis.dialects.openai_chat_calls import LEGACY, changed_call, ending, keys_of, proposed
from aegis.dialects.openai_chat_stream import ChatStream


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

    def settle(self, answer: Wire, rulings: Mapping[str, Ruling], *, structured: bool) -> Settled:
        """The completion without its refused calls; a choice without any call left ends as text."""
        removals: list[Removal] = []
        choices: list[Any] = []
        for position, choice in enumerate(list_of(answer.get("choices"))):
            if isinstance(choice, dict):
                choice, removal = _settle_choice(choice, position, rulings, structured)
                if removal is not None:
                    removals.append(removal)
            choices.append(choice)
        return Settled(answer={**answer, "choices": choices} if choices else answer, removals=tuple(removals))

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

    def brought(self, request: Wire) -> list[Brought]:
        """The documents and the user's texts that a request brings."""
        return brought_to_chat(request)

    def with_arguments(self, call: Wire, arguments: dict[str, Any]) -> Wire:
        """A wire call with other arguments."""
        return changed_call(call, arguments)

    def put_back(self, request: Wire, recall: Recall) -> Wire:
        """The request whose assistant messages hold their refused calls again, each with its tool message."""
        recall = Once(recall)
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
    kept: list[Wire] = []
    refused: list[Refused] = []
    for index, (key, call) in enumerate(found):
        ruling = rulings.get(key, NO_RULING)
        if ruling.allowed:
            kept.append(call if ruling.arguments is None else changed_call(call, ruling.arguments))
        else:
            refused.append(Refused(call=call, call_id=text_of(call.get("id")), index=index, message=ruling.message))
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
