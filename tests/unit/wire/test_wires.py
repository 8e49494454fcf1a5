"""One conversation in the words of each vendor, and each vendor's answers read, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from aegis.errors import ForeignAnswer
from aegis.wire.client import Anthropic, Message, ModelAnswer, ModelEndpoint, ModelRequest, OpenAI, Wire

TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
TALK: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
    {"role": "assistant", "content": "", "tool_calls": [CALL, {**CALL, "id": "c2"}]},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "tool", "tool_call_id": "c2", "content": "two"},
    {"role": "user", "content": "And?"},
]
SAID = ModelAnswer(text="fine", calls=(ModelRequest(call_id="c1", name="look", arguments='{"a":1}'),), read=3, wrote=4)
CHAT: dict[str, Any] = {
    "choices": [{"message": {"role": "assistant", "content": "fine", "tool_calls": [CALL]}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}
MESSAGE: dict[str, Any] = {
    "type": "message",
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "..."},
        {"type": "text", "text": "fine"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}},
    ],
    "usage": {"input_tokens": 3, "output_tokens": 4},
}


def endpoint(**members: Any) -> ModelEndpoint:
    return ModelEndpoint(api="openai", url="https://models.test", name="m", **members)


def test_chat_completions_are_passed_on_as_they_are() -> None:
    body = OpenAI().body(endpoint(max_tokens=9, temperature=0), TALK, [TOOL])
    assert body == {"model": "m", "messages": TALK, "tools": [TOOL], "max_tokens": 9, "temperature": 0}
    assert OpenAI().body(endpoint(), TALK, []) == {"model": "m", "messages": TALK}


def test_messages_have_a_system_and_roles_that_take_turns() -> None:
    body = Anthropic().body(endpoint(), TALK, [TOOL])
    assert body["system"] == "Be brief."
    assert body["tools"] == [{"name": "look", "description": "Look.", "input_schema": {"type": "object"}}]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"][0] == {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}}
    assert [block.get("tool_use_id") for block in body["messages"][2]["content"]] == ["c1", "c2", None]
    assert body["max_tokens"] > 0


def test_a_key_is_shown_as_each_vendor_wants_it_and_only_where_there_is_one() -> None:
    assert OpenAI().headers("k") == {"authorization": "Bearer k"}
    assert OpenAI().headers("") == {}
    assert Anthropic().headers("k")["x-api-key"] == "k"
    assert set(Anthropic().headers("")) == {"anthropic-version"}


@pytest.mark.parametrize(("wire", "document"), [(OpenAI(), CHAT), (Anthropic(), MESSAGE)])
def test_answers_of_both_vendors_say_the_same(wire: Wire, document: Any) -> None:
    assert wire.answer(document) == SAID
    assert wire.answer(document).message == {"role": "assistant", "content": "fine", "tool_calls": [CALL]}


@pytest.mark.parametrize("tokens", [None, -1, True, "3", 2.5])
def test_a_count_of_tokens_that_is_none_counts_as_nothing(tokens: Any) -> None:
    assert OpenAI().answer({**CHAT, "usage": {"prompt_tokens": tokens}}).read == 0
    assert Anthropic().answer({**MESSAGE, "usage": {"output_tokens": tokens}}).wrote == 0


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"choices": []},
        {"choices": CHAT["choices"] * 2},
        {"choices": [{}]},
        {"choices": [{"message": {"content": [1]}}]},
        {"choices": [{"message": {"content": "x", "tool_calls": [{"id": "c"}]}}]},
        {"choices": [{"message": {"tool_calls": [{**CALL, "function": {"name": "look", "arguments": {"a": 1}}}]}}]},
        {**CHAT, "usage": [1]},
    ],
)
def test_what_is_no_chat_completion_is_refused(document: Any) -> None:
    with pytest.raises(ForeignAnswer):
        OpenAI().answer(document)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {**MESSAGE, "type": "error"},
        {**MESSAGE, "role": "user"},
        {**MESSAGE, "content": "fine"},
        {**MESSAGE, "content": [{"type": "text", "text": 1}]},
        {**MESSAGE, "content": [{"type": "tool_use", "id": "c", "name": "look"}]},
        {**MESSAGE, "usage": "much"},
    ],
)
def test_what_is_no_message_is_refused(document: Any) -> None:
    with pytest.raises(ForeignAnswer):
        Anthropic().answer(document)
