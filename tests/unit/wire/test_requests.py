"""Refused calls come back, with their refusals, into the next request; results are found and replaced there."""

from __future__ import annotations

from typing import Any

import pytest

from aegis.wire.model import Removal, Wire, call_key, put_all
from support.answers import DIALECTS, Call, refused, settled, whole

MAIL: Call = ("call_a", "send_email", '{"to":"a@example.com"}')
FILE: Call = ("call_b", "read_file", '{"path":"notes.txt"}')

every_dialect = pytest.mark.parametrize("name", DIALECTS)


class Memory:
    """Remembers removals as an adapter does."""

    def __init__(self) -> None:
        self.kept: dict[str, Removal] = {}
        self.refs: dict[str, Removal] = {}
        self.anchors: dict[str, Removal] = {}

    def learn(self, name: str, answer: Wire, removals: list[Removal]) -> None:
        for removal in removals:
            self.kept.update(dict.fromkeys(removal.kept, removal))
            self.refs[removal.ref] = removal
            self.anchors.update(dict.fromkeys(DIALECTS[name].anchors(answer), removal))

    def by_call(self, key: str) -> Removal | None:
        return self.kept.get(key)

    def by_ref(self, ref: str) -> Removal | None:
        return self.refs.get(ref)

    def by_anchor(self, anchor: str) -> Removal | None:
        return self.anchors.get(anchor)


def echoed(name: str, answer: Wire) -> list[Any]:
    """An answer as clients put it into their next request."""
    if name == "chat":
        return [answer["choices"][0]["message"]]
    if name == "responses":
        return list(answer["output"])
    return [{"role": "assistant", "content": answer["content"]}]


def output(name: str, call_id: str, text: str) -> Any:
    if name == "chat":
        return {"role": "tool", "tool_call_id": call_id, "content": text}
    if name == "responses":
        return {"type": "function_call_output", "call_id": call_id, "output": text}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return {"role": "user", "content": [result]}


def request(name: str, turns: list[Any]) -> Wire:
    return {"model": "m", "input" if name == "responses" else "messages": turns}


def turns(name: str, wire: Wire) -> list[Any]:
    found: list[Any] = wire["input" if name == "responses" else "messages"]
    return found


USER = {"role": "user", "content": "do it"}


@every_dialect
def test_a_refused_call_comes_back_beside_the_one_that_stayed(name: str) -> None:
    memory = Memory()
    original = whole(name, "hi", [MAIL, FILE])
    answer, removals = settled(name, original, {"call_a": refused("no mail")})
    memory.learn(name, answer, removals)
    sent = request(name, [USER, *echoed(name, answer), output(name, "call_b", "text")])
    restored = turns(name, DIALECTS[name].put_back(sent, memory))

    spoken = echoed(name, original)
    assert restored[1 : 1 + len(spoken)] == spoken
    outputs = {one.call_id: one.value for one in DIALECTS[name].outputs(request(name, restored))}
    assert outputs == {"call_a": "no mail", "call_b": "text"}
    # Nothing is given to the caller's own list.
    assert turns(name, sent) == [USER, *echoed(name, answer), output(name, "call_b", "text")]


@every_dialect
@pytest.mark.parametrize("text", ["", "let me see"])
def test_a_turn_without_any_call_left_is_restored_before_its_text(name: str, text: str) -> None:
    memory = Memory()
    original = whole(name, text, [MAIL])
    answer, removals = settled(name, original, {"call_a": refused("no mail")})
    memory.learn(name, answer, removals)
    restored = turns(name, DIALECTS[name].put_back(request(name, [USER, *echoed(name, answer), USER]), memory))

    outputs = DIALECTS[name].outputs(request(name, restored))
    assert [(one.call_id, one.value) for one in outputs] == [("call_a", "no mail")]
    assert restored[0] == USER
    assert restored[-1] == USER
    assert "no mail" in str(restored[-2])
    calls = [part for part in restored if "send_email" in str(part)]
    assert len(calls) == 1
    assert restored.index(calls[0]) < len(restored) - 3


@every_dialect
def test_another_conversation_with_the_same_ids_learns_nothing(name: str) -> None:
    memory = Memory()
    answer, removals = settled(name, whole(name, "", [MAIL, FILE]), {"call_a": refused()})
    memory.learn(name, answer, removals)
    other = ("call_b", "read_file", '{"path":"other.txt"}')
    sent = request(name, [USER, *echoed(name, whole(name, "", [other])), output(name, "call_b", "x")])
    assert DIALECTS[name].put_back(sent, memory) == sent


@every_dialect
def test_a_model_that_repeats_a_reference_does_not_repeat_the_call(name: str) -> None:
    memory = Memory()
    answer, removals = settled(name, whole(name, "", [MAIL]), {"call_a": refused("no mail")})
    memory.learn(name, answer, removals)
    sent = request(name, [USER, *echoed(name, answer), USER, *echoed(name, answer), USER])
    restored = turns(name, DIALECTS[name].put_back(sent, memory))
    assert len(DIALECTS[name].outputs(request(name, restored))) == 1


@every_dialect
def test_a_request_of_which_nothing_is_known_is_left_alone(name: str) -> None:
    sent = request(name, [USER, *echoed(name, whole(name, "hi", [MAIL])), output(name, "call_a", "done")])
    assert DIALECTS[name].put_back(sent, Memory()) is sent


def test_a_response_that_the_provider_keeps_needs_only_the_refusals() -> None:
    memory = Memory()
    answer, removals = settled("responses", whole("responses", "", [MAIL, FILE]), {"call_a": refused("no mail")})
    memory.learn("responses", answer, removals)
    refusal = {"type": "function_call_output", "call_id": "call_a", "output": "no mail"}
    done = output("responses", "call_b", "text")
    put_back = DIALECTS["responses"].put_back
    sent = put_back({"previous_response_id": "resp_1", "input": [done]}, memory)
    assert sent["input"] == [refusal, done]
    sent = put_back({"previous_response_id": "resp_1", "input": "go on"}, memory)
    assert sent["input"] == [refusal, {"role": "user", "content": "go on"}]
    assert put_back({"previous_response_id": "resp_2", "input": "go on"}, memory)["input"] == "go on"


def test_a_thread_that_the_server_keeps_needs_only_the_refusals() -> None:
    memory = Memory()
    answer, removals = settled("anthropic", whole("anthropic", "", [MAIL, FILE]), {"call_a": refused("no mail")})
    memory.learn("anthropic", answer, removals)
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    sent = {"thread": thread, "messages": [output("anthropic", "call_b", "text")]}
    (message,) = DIALECTS["anthropic"].put_back(sent, memory)["messages"]
    assert [block["tool_use_id"] for block in message["content"]] == ["call_a", "call_b"]
    (message,) = DIALECTS["anthropic"].put_back({"thread": thread, "messages": [USER]}, memory)["messages"]
    assert [block["type"] for block in message["content"]] == ["tool_result", "text"]


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ({"type": "custom_tool_call", "call_id": "c", "name": "w", "input": "x"}, "custom_tool_call_output"),
        ({"type": "local_shell_call", "call_id": "c", "action": {}}, "local_shell_call_output"),
        ({"type": "shell_call", "call_id": "c", "action": {}}, "shell_call_output"),
        ({"type": "apply_patch_call", "call_id": "c", "operation": {}}, "apply_patch_call_output"),
        ({"type": "computer_call", "call_id": "c", "action": {}}, "computer_call_output"),
        ({"type": "mcp_approval_request", "id": "c", "name": "d", "arguments": "{}"}, "mcp_approval_response"),
    ],
)
def test_every_kind_of_refused_item_is_answered_in_its_own_format(item: Wire, kind: str) -> None:
    memory = Memory()
    answer, removals = settled("responses", {"id": "r", "output": [item]}, {"c": refused("no")})
    memory.learn("responses", answer, removals)
    restored = DIALECTS["responses"].put_back({"input": answer["output"]}, memory)["input"]
    assert restored[0] == item
    assert restored[1]["type"] == kind
    assert "no" in str(restored)


@every_dialect
def test_results_are_found_where_they_stand_and_can_be_replaced(name: str) -> None:
    sent = request(name, [USER, output(name, "call_a", "secret"), output(name, "call_b", "fine")])
    first, second = DIALECTS[name].outputs(sent)
    assert (first.call_id, first.value, second.call_id) == ("call_a", "secret", "call_b")
    replaced = put_all(sent, [(first.path, "****")])
    assert [one.value for one in DIALECTS[name].outputs(replaced)] == ["****", "fine"]
    both = put_all(sent, [(first.path, "1"), (second.path, "2")])
    assert [one.value for one in DIALECTS[name].outputs(both)] == ["1", "2"]
    assert DIALECTS[name].outputs(sent)[0].value == "secret"


@every_dialect
def test_a_call_is_known_again_however_its_arguments_are_spelled(name: str) -> None:
    spelled = ("call_b", "read_file", '{ "path" :  "notes.txt" }')
    one, two = (DIALECTS[name].calls(whole(name, "", [call]))[0] for call in (FILE, spelled))
    assert call_key(one) == call_key(two) != ""


@every_dialect
@pytest.mark.parametrize("junk", [None, "text", 7, [None, "x", 7, {}], [{"role": "assistant", "content": [None, 3]}]])
def test_a_request_of_another_shape_is_left_alone(name: str, junk: object) -> None:
    sent = {"messages": junk, "input": junk}
    assert DIALECTS[name].outputs(sent) == []
    assert DIALECTS[name].put_back(sent, Memory()) == sent
