"""A streamed answer comes to what the whole one says; one that breaks off or makes no sense is no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.errors import ForeignAnswer
from aegis.runs.masking import Revealing, revealed
from aegis.wire.client import Anthropic, Assembly, ChatAssembly, MessageAssembly, OpenAI, Wire
from support.answers import Call, events, whole

WIRES: dict[str, tuple[Wire, type[Assembly]]] = {
    "chat": (OpenAI(), ChatAssembly),
    "anthropic": (Anthropic(), MessageAssembly),
}
CALLS: list[Call] = [("c1", "look", '{"a": 1}'), ("c2", "send", '{"b": "x"}')]


def heard(name: str, text: str, calls: list[Call], *, until: int | None = None) -> tuple[str, Assembly]:
    assembly = WIRES[name][1]()
    wires = [json.loads(event.data) for event in events(name, text, calls) if event.data.startswith("{")]
    return "".join(assembly.take(wire) for wire in wires[:until]), assembly


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("calls", [[], CALLS], ids=["text", "calls"])
def test_a_stream_comes_to_the_whole_answer(name: str, calls: list[Call]) -> None:
    text, assembly = heard(name, "some words", calls)
    wire = WIRES[name][0]
    streamed, once = wire.answer(assembly.document()), wire.answer(whole(name, "some words", calls))
    assert text == streamed.text == once.text == "some words"
    assert [(one.call_id, one.name, json.loads(one.arguments)) for one in streamed.calls] == [
        (one.call_id, one.name, json.loads(one.arguments)) for one in once.calls
    ]


@pytest.mark.parametrize("name", WIRES)
def test_a_stream_that_breaks_off_is_no_answer(name: str) -> None:
    _, assembly = heard(name, "some words", CALLS, until=-1)
    with pytest.raises(ForeignAnswer):
        assembly.document()


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("chat", []),
        ("chat", {"error": {"message": "overloaded"}}),
        ("chat", {"choices": [{"delta": None}]}),
        ("chat", {"choices": [{"delta": {"tool_calls": [{"function": {}}]}}]}),
        ("anthropic", 1),
        ("anthropic", {"type": "error"}),
        ("anthropic", {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}}),
        ("anthropic", {"type": "content_block_start", "index": 0}),
    ],
)
def test_what_is_no_event_of_the_format_is_refused(name: str, event: Any) -> None:
    with pytest.raises(ForeignAnswer):
        WIRES[name][1]().take(event)


VAULT = {"[[pii:1]]": "one", "[[pii:12]]": "twelve", "[[secret-key:3]]": "[[pii:1]]"}
pieces = st.lists(st.sampled_from([*"[]:1", "[[", "]]", "pii", "[[pii:1", "[[pii:1]]", "secret-key:3]]", "word "]))


@given(pieces)
def test_placeholders_in_pieces_come_to_what_they_come_to_whole(given_pieces: list[str]) -> None:
    revealing = Revealing(VAULT)
    out = "".join(revealing.feed(piece) for piece in given_pieces) + revealing.end()
    assert out == revealed("".join(given_pieces), VAULT)
