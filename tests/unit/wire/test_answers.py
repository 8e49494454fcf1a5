"""Calls come out of answers, refused ones are gone, and what is left is a valid answer; streamed or whole alike."""

from __future__ import annotations

import json

import pytest

from aegis.errors import ForeignAnswer
from aegis.wire.model import Ruling, WireEvent
from support.accumulate import accumulated
from support.answers import (
    ALLOWED,
    DIALECTS,
    Call,
    events,
    filtered,
    refused,
    said_and_called,
    settled,
    whole,
)

MAIL: Call = ("call_a", "send_email", '{"to":"a@example.com"}')
FILE: Call = ("call_b", "read_file", '{"path":"notes.txt","n":1}')

every_dialect = pytest.mark.parametrize("name", DIALECTS)


@every_dialect
def test_calls_are_found_with_id_tool_and_arguments(name: str) -> None:
    found = DIALECTS[name].calls(whole(name, "hi", [MAIL, FILE]))
    assert [(call.call_id, call.tool, call.arguments) for call in found] == [
        ("call_a", "send_email", {"to": "a@example.com"}),
        ("call_b", "read_file", {"path": "notes.txt", "n": 1}),
    ]
    assert len({call.key for call in found}) == 2


@every_dialect
def test_an_answer_without_calls_is_passed_on_as_it_is(name: str) -> None:
    answer = whole(name, "hi", [])
    assert DIALECTS[name].calls(answer) == []
    assert settled(name, answer, {})[0] == answer
    stream = events(name, "hi", [])
    assert filtered(name, stream, {}).events == stream


@every_dialect
def test_allowed_calls_are_passed_on_unchanged(name: str) -> None:
    answer = whole(name, "hi", [MAIL, FILE])
    assert settled(name, answer, {}) == (answer, [])
    stream = filtered(name, events(name, "hi", [MAIL, FILE]), {})
    assert said_and_called(name, accumulated(name, stream.events)) == said_and_called(name, answer)
    assert stream.removals == []


@every_dialect
def test_a_refused_call_is_gone_and_the_others_stay(name: str) -> None:
    rulings = {"call_a": refused()}
    answer, removals = settled(name, whole(name, "hi", [MAIL, FILE]), rulings)
    text, calls = said_and_called(name, answer)
    assert text == "hi"
    assert [call[0] for call in calls] == ["call_b"]
    assert "a@example.com" not in json.dumps(answer)
    (removal,) = removals
    assert [one.call_id for one in removal.refused] == ["call_a"]

    stream = filtered(name, events(name, "hi", [MAIL, FILE]), rulings)
    assert said_and_called(name, accumulated(name, stream.events)) == (text, calls)
    assert all("a@example.com" not in event.data for event in stream.events)
    assert stream.removals == removals


@every_dialect
@pytest.mark.parametrize("text", ["", "let me see"])
def test_an_answer_with_no_call_left_ends_as_text(name: str, text: str) -> None:
    rulings = {"call_a": refused("no mail"), "call_b": refused("no files")}
    answer, removals = settled(name, whole(name, text, [MAIL, FILE]), rulings)
    said, calls = said_and_called(name, answer)
    assert calls == []
    assert said.startswith(text)
    assert "no mail" in said
    assert "no files" in said
    assert reason(name, answer) in ("stop", "completed", "end_turn")
    assert len(removals) == 1

    stream = filtered(name, events(name, text, [MAIL, FILE]), rulings)
    streamed = accumulated(name, stream.events)
    assert said_and_called(name, streamed)[1] == []
    assert said_and_called(name, streamed)[0].startswith(text)
    assert "no mail" in said_and_called(name, streamed)[0]
    assert reason(name, streamed) == reason(name, answer)


@every_dialect
def test_changed_arguments_take_the_place_of_the_models(name: str) -> None:
    rulings = {"call_a": Ruling(allowed=True, arguments={"to": "b@example.com"})}
    answer, removals = settled(name, whole(name, "hi", [MAIL, FILE]), rulings)
    calls = said_and_called(name, answer)[1]
    assert json.loads(calls[0][2]) == {"to": "b@example.com"}
    assert calls[0][:2] == MAIL[:2]
    assert removals == []

    stream = filtered(name, events(name, "hi", [MAIL, FILE]), rulings)
    streamed = said_and_called(name, accumulated(name, stream.events))[1]
    assert [(call[0], call[1], json.loads(call[2])) for call in streamed] == [
        (call[0], call[1], json.loads(call[2])) for call in calls
    ]
    assert all("a@example.com" not in event.data for event in stream.events)


@every_dialect
def test_text_streams_before_anything_is_asked(name: str) -> None:
    stream = events(name, "some words to say", [MAIL])
    result = filtered(name, stream, {})
    first_pieces = [event for event in stream if '"som"' in event.data]
    assert first_pieces[0] in result.events[: result.passed_before_asking]
    assert not any("send_email" in event.data for event in result.events[: result.passed_before_asking])


@every_dialect
@pytest.mark.parametrize(
    "arguments", ['{"to":', '{"to":1,"to":2}', "[1]", '"x"', "NaN", '{"n":1e999}', '{"s":"\\ud800"}', "{'to': 1}"]
)
def test_arguments_that_cannot_be_read_carry_a_sentence_for_the_model(name: str, arguments: str) -> None:
    broken: Call = ("call_x", "send_email", arguments)
    asked = filtered(name, events(name, "", [broken, FILE]), {"call_x": refused()}).asked
    if name != "anthropic":  # whole messages hold parsed input
        assert DIALECTS[name].calls(whole(name, "", [broken]))[0].arguments is None
    assert asked[0].arguments is None
    assert "send_email" in asked[0].problem
    assert asked[1].arguments == json.loads(FILE[2])


@every_dialect
def test_blank_arguments_are_the_empty_object(name: str) -> None:
    blank: Call = ("call_x", "now", "")
    assert DIALECTS[name].calls(whole(name, "", [blank]))[0].arguments == {}
    assert filtered(name, events(name, "", [blank]), {}).asked[0].arguments == {}


@every_dialect
def test_a_stream_that_breaks_off_passes_no_call_on(name: str) -> None:
    stream = events(name, "hi", [MAIL, FILE])
    for cut in range(len(stream)):
        asked_late = filtered(name, stream[:cut], {"call_a": refused(), "call_b": refused()})
        assert not any("send_email" in event.data or "read_file" in event.data for event in asked_late.events)


@every_dialect
def test_a_call_without_a_ruling_is_refused(name: str) -> None:
    answer = DIALECTS[name].settle(whole(name, "", [MAIL]), {}, structured=False).answer
    assert said_and_called(name, answer)[1] == []


@every_dialect
def test_where_text_is_parsed_as_data_the_message_stands_elsewhere(name: str) -> None:
    rulings = {"call_a": refused("no mail")}
    answer, _ = settled(name, whole(name, "", [MAIL]), rulings, structured=True)
    streamed = accumulated(name, filtered(name, events(name, "", [MAIL]), rulings, structured=True).events)
    for one in (answer, streamed):
        if name == "chat":
            message = one["choices"][0]["message"]
            assert not message.get("content")
            assert "no mail" in message["refusal"]
        elif name == "responses":
            assert "no mail" in one["output"][0]["content"][0]["refusal"]
        else:
            assert one["content"] == []
            assert one["stop_reason"] == "refusal"
            assert "no mail" in one["stop_details"]["explanation"]


@every_dialect
def test_a_stream_that_is_not_of_the_format_is_not_passed_on(name: str) -> None:
    with pytest.raises(ForeignAnswer):
        DIALECTS[name].stream(structured=False).feed(WireEvent(data='{"choices": [', event="content_block_start"))


def reason(name: str, answer: dict[str, object]) -> object:
    if name == "chat":
        choices = answer["choices"]
        assert isinstance(choices, list)
        return choices[0]["finish_reason"]
    return answer["status" if name == "responses" else "stop_reason"]


def test_every_choice_of_a_completion_is_settled_for_itself() -> None:
    one, two = whole("chat", "", [MAIL])["choices"][0], whole("chat", "", [FILE])["choices"][0]
    answer = {"id": "c", "object": "chat.completion", "choices": [one, {**two, "index": 1}]}
    left, removals = settled("chat", answer, {"call_a": refused()})
    assert [choice["finish_reason"] for choice in left["choices"]] == ["stop", "tool_calls"]
    assert len(removals) == 1


def test_legacy_and_custom_calls_of_a_completion_are_calls() -> None:
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    custom = {
        "role": "assistant",
        "tool_calls": [{"id": "x", "type": "custom", "custom": {"name": "g", "input": "hi"}}],
    }
    for message, tool, arguments in ((legacy, "f", {}), (custom, "g", {"input": "hi"})):
        answer = {"id": "c1", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
        (call,) = DIALECTS["chat"].calls(answer)
        assert (call.tool, call.arguments) == (tool, arguments)
        assert call.call_id
        left = DIALECTS["chat"].settle(answer, {call.key: refused()}, structured=False).answer
        assert "function_call" not in left["choices"][0]["message"]
        assert "tool_calls" not in left["choices"][0]["message"]
        kept = DIALECTS["chat"].settle(answer, {call.key: ALLOWED}, structured=False).answer
        assert DIALECTS["chat"].calls(kept) == [call]


ITEMS = {
    "local_shell": {"type": "local_shell_call", "call_id": "c", "id": "i", "action": {"command": ["ls"]}},
    "shell": {"type": "shell_call", "call_id": "c", "id": "i", "action": {"commands": ["ls"]}},
    "apply_patch": {"type": "apply_patch_call", "call_id": "c", "id": "i", "operation": {"path": "a"}},
    "computer": {"type": "computer_call", "call_id": "c", "id": "i", "action": {"type": "click"}},
    "write": {"type": "custom_tool_call", "call_id": "c", "id": "i", "name": "write", "input": "text"},
    "delete": {"type": "mcp_approval_request", "id": "i", "name": "delete", "arguments": "{}", "server_label": "mail"},
    "future_call": {"type": "future_call", "id": "i", "what": "ever"},
}


@pytest.mark.parametrize("tool", ITEMS)
def test_every_kind_of_item_that_the_agent_executes_is_a_call(tool: str) -> None:
    answer = {"id": "r", "object": "response", "status": "completed", "output": [ITEMS[tool]]}
    (call,) = DIALECTS["responses"].calls(answer)
    assert call.tool == tool
    assert call.arguments is not None
    assert settled("responses", answer, {})[0] == answer
    left, _ = settled("responses", answer, {call.call_id: refused()})
    assert [item["type"] for item in left["output"]] == ["message"]


@pytest.mark.parametrize(
    "kind", ["web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "reasoning"]
)
def test_what_the_provider_executed_itself_is_left_alone(kind: str) -> None:
    answer = {"id": "r", "output": [{"type": kind, "id": "i"}]}
    assert DIALECTS["responses"].calls(answer) == []
    message = {"id": "m", "content": [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]}
    assert DIALECTS["anthropic"].calls(message) == []


def test_a_response_that_ends_with_another_call_than_it_streamed_is_refused_whole() -> None:
    stream = events("responses", "", [MAIL])
    forged = stream[-1].data.replace("a@example.com", "evil@example.com")
    with pytest.raises(ForeignAnswer):
        filtered("responses", [*stream[:-1], WireEvent(event=stream[-1].event, data=forged)], {})


def test_a_response_that_lists_no_output_at_its_end_keeps_its_streamed_calls() -> None:
    stream = events("responses", "", [MAIL])
    end = json.loads(stream[-1].data)
    del end["response"]["output"]
    bare = [*stream[:-1], WireEvent(event=stream[-1].event, data=json.dumps(end))]
    assert said_and_called("responses", accumulated("responses", filtered("responses", bare, {}).events))[1] == [MAIL]
    left = filtered("responses", bare, {"call_a": refused("no mail")})
    assert "no mail" in said_and_called("responses", accumulated("responses", left.events))[0]


def test_words_after_a_refused_call_keep_their_place() -> None:
    tail = [
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "after"}},
        {"type": "content_block_stop", "index": 2},
    ]
    stream = events("anthropic", "before", [MAIL])
    stream[-2:-2] = [WireEvent(event=str(wire["type"]), data=json.dumps(wire)) for wire in tail]
    left = accumulated("anthropic", filtered("anthropic", stream, {"call_a": refused("no mail")}).events)
    assert [block["text"][:6] for block in left["content"]] == ["before", "after", "no mai"]
    kept = accumulated("anthropic", filtered("anthropic", stream, {}).events)
    assert [block["type"] for block in kept["content"]] == ["text", "tool_use", "text"]
