"""Anthropic messages: tool uses in answers, results and refusals in requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aegis.dialects.anthropic_blocks import ending, is_call, keys_of, proposed, refusal_of, rule
from aegis.dialects.anthropic_stream import AnthropicStream
from aegis.dialects.brought import Brought, brought_to_messages
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


class AnthropicMessages:
    """The dialect of `POST /v1/messages`."""

    def anchors(self, answer: Wire) -> tuple[str, ...]:
        """The message's id; a thread that the server keeps is continued from it."""
        return (text_of(answer.get("id")),)

    def calls(self, answer: Wire) -> list[Proposed]:
        """Every block that the agent's side executes."""
        return [proposed(block, str(index)) for index, block in enumerate(_content(answer)) if is_call(block)]

    def settle(self, answer: Wire, rulings: Mapping[str, Ruling], *, structured: bool) -> Settled:
        """The message without its refused calls; where no call is left it ends as text."""
        content: list[Any] = []
        kept: list[Wire] = []
        refused: list[Refused] = []
        place = 0
        for index, block in enumerate(_content(answer)):
            if not is_call(block):
                content.append(block)
                continue
            ruled = rule(block, index, rulings.get(str(index), NO_RULING))
            if isinstance(ruled, Refused):
                place = place if refused else len(content)
                refused.append(ruled)
            else:
                kept.append(ruled)
                content.append(ruled)
        if not refused:
            return Settled(answer={**answer, "content": content} if kept else answer)
        if kept:
            removal = Removal(refused=tuple(refused), kept=keys_of(kept))
            return Settled(answer={**answer, "content": content}, removals=(removal,))
        blocks, members, removal = ending(refused, answer, structured)
        content[place:place] = blocks
        return Settled(answer={**answer, "content": content, **members}, removals=(removal,))

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

    def brought(self, request: Wire) -> list[Brought]:
        """The documents and the user's texts that a request brings."""
        return brought_to_messages(request)

    def with_arguments(self, call: Wire, arguments: dict[str, Any]) -> Wire:
        """A tool use with other input."""
        return {**call, "input": arguments}

    def put_back(self, request: Wire, recall: Recall) -> Wire:
        """The request whose assistant messages hold their refused calls again, each with its result.

        In a thread that the server keeps, it has the calls already and needs only the results.
        """
        recall = Once(recall)
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
