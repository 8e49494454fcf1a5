"""Whatever a model says and however it is ruled on: streams and whole answers come to the same."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.errors import ForeignAnswer
from aegis.wire.model import Ruling, WireEvent
from aegis.wire.sse import SseReader, sse_bytes
from support.accumulate import accumulated
from support.answers import ALLOWED, DIALECTS, Call, events, filtered, refused, said_and_called, settled, whole

names = st.sampled_from(sorted(DIALECTS))
texts = st.text(st.characters(codec="utf-8"), max_size=20)
leaves = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | texts
values: st.SearchStrategy[Any] = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
arguments = st.dictionaries(texts, values, max_size=3).map(json.dumps)
tools = st.sampled_from(["send_email", "read_file", "run"])
rulings = st.sampled_from([ALLOWED, refused("no"), Ruling(allowed=True, arguments={"safe": 1})])


@st.composite
def turns(draw: st.DrawFn) -> tuple[str, list[Call], dict[str, Ruling]]:
    calls = [(f"call_{n}", draw(tools), draw(arguments)) for n in range(draw(st.integers(0, 4)))]
    return draw(texts), calls, {call[0]: draw(rulings) for call in calls}


def comparable(name: str, answer: dict[str, Any]) -> list[tuple[str, str, Any]]:
    return [(call_id, tool, json.loads(given)) for call_id, tool, given in said_and_called(name, answer)[1]]


@settings(max_examples=150, deadline=None)
@given(names, turns())
def test_a_stream_comes_to_what_the_whole_answer_comes_to(
    name: str, turn: tuple[str, list[Call], dict[str, Ruling]]
) -> None:
    text, calls, ruled = turn
    answer, removals = settled(name, whole(name, text, calls), ruled)
    stream = filtered(name, events(name, text, calls), ruled)
    streamed = accumulated(name, stream.events)
    assert comparable(name, streamed) == comparable(name, answer)
    assert [removal.kept for removal in stream.removals] == [removal.kept for removal in removals]
    assert [one.call_id for r in stream.removals for one in r.refused] == [
        call[0] for call in calls if not ruled[call[0]].allowed
    ]
    assert said_and_called(name, streamed)[0].startswith(text)


@settings(max_examples=150, deadline=None)
@given(names, st.data())
def test_a_mangled_stream_passes_no_call_that_was_not_asked_about(name: str, data: st.DataObject) -> None:
    text, calls, _ = data.draw(turns())
    stream = events(name, text, calls)
    order = data.draw(st.permutations(range(len(stream))))
    keep = data.draw(st.integers(0, len(stream)))
    try:
        result = filtered(name, [stream[at] for at in order[:keep]], {call[0]: refused() for call in calls})
    except ForeignAnswer:
        return
    ends = ("response.completed",)
    for event in result.events:
        wire = json.loads(event.data) if event.data.startswith("{") else {}
        for call in calls:
            assert f'"{call[0]}"' not in event.data or (wire.get("type") in ends and not wire["response"]["output"])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(1, 7), max_size=60))
def test_reading_events_does_not_depend_on_the_chunks(stream: bytes, sizes: list[int]) -> None:
    def read(chunks: list[bytes]) -> object:
        reader = SseReader()
        try:
            return [event for chunk in chunks for event in reader.feed(chunk)] + reader.end()
        except ForeignAnswer:
            return "refused"

    chunks, at = [], 0
    for size in sizes:
        chunks.append(stream[at : at + size])
        at += size
    assert read([*chunks, stream[at:]]) == read([stream])


@given(names, values)
def test_answers_of_any_shape_are_settled_or_left(name: str, junk: Any) -> None:
    for answer in ({"choices": junk, "output": junk, "content": junk}, {"choices": [{"message": junk}]}):
        calls = DIALECTS[name].calls(answer)
        assert all(call.tool for call in calls)
        DIALECTS[name].settle(answer, {}, structured=False)


lines = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r"))


@given(st.lists(st.tuples(st.sampled_from(["", "a"]), lines)))
def test_events_survive_being_written_and_read(pairs: list[tuple[str, str]]) -> None:
    sent = [WireEvent(event=kind, data=data) for kind, data in pairs if kind or data]
    reader = SseReader()
    assert reader.feed(b"".join(sse_bytes(event) for event in sent)) + reader.end() == sent
