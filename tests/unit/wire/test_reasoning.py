"""Reasoning as it stands in the answers of providers, whole and streamed, and as it goes back to them."""

from __future__ import annotations

from typing import Any

import pytest

from aegis.core.reasoning import MAX_CHARS, ReasoningBlock, digest_of, read_reasoning, reasoning_of
from aegis.errors import InvalidCall
from aegis.wire.reasoning import ReasoningReader, blocks_of, may_reason, sent_back

THINKING = {"type": "thinking", "thinking": "look first", "signature": "s1"}
REDACTED = {"type": "redacted_thinking", "data": "enc"}
ITEM = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "look"}],
    "encrypted_content": "e",
}
CONVERSE = {"reasoningContent": {"reasoningText": {"text": "look", "signature": "s2"}}}
THOUGHT = {"text": "look", "thought": True, "thoughtSignature": "s3"}
SIGNED = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s4"}


def block(text: str = "", signature: str = "") -> ReasoningBlock:
    return ReasoningBlock(text=text, signature=signature)


@pytest.mark.parametrize(
    ("answer", "request_", "blocks"),
    [
        (
            {"content": [THINKING, REDACTED, {"type": "text", "text": "hi"}]},
            {"messages": [{"role": "assistant", "content": [THINKING, REDACTED]}]},
            [block("look first", "s1"), block("", "enc")],
        ),
        ({"output": [ITEM, {"type": "message", "content": []}]}, {"input": [ITEM]}, [block("look", "e")]),
        (
            {"choices": [{"message": {"role": "assistant", "content": "a", "reasoning_content": "look"}}]},
            {"messages": [{"role": "assistant", "content": "a", "reasoning_content": "look"}]},
            [block("look")],
        ),
        (
            {"candidates": [{"content": {"role": "model", "parts": [THOUGHT, SIGNED]}}]},
            {"contents": [{"role": "model", "parts": [THOUGHT, SIGNED]}]},
            [block("look"), block("", "s3"), block("", "s4")],
        ),
        (
            {"output": {"message": {"role": "assistant", "content": [CONVERSE]}}},
            {"messages": [{"role": "assistant", "content": [CONVERSE]}]},
            [block("look", "s2")],
        ),
        ({"message": {"role": "assistant", "thinking": "look"}}, {"messages": []}, [block("look")]),
        ({"content": "text"}, {"messages": [{"role": "user", "content": [THINKING]}]}, []),
        ({"choices": [None, {}], "output": 3, "candidates": [{}]}, {"messages": "x", "input": [1]}, []),
    ],
)
def test_blocks_are_told_by_their_shape_in_every_format(
    answer: dict[str, Any], request_: dict[str, Any], blocks: list[ReasoningBlock]
) -> None:
    assert blocks_of(answer) == blocks
    if request_.get("messages") != []:
        assert sent_back(request_) == blocks


def streamed(*events: dict[str, Any]) -> tuple[list[ReasoningBlock], list[bool]]:
    reader = ReasoningReader()
    wanted = [reader.take(event) for event in events]
    return reader.finished(), wanted


def test_blocks_of_a_stream_are_those_of_the_whole() -> None:
    found, wanted = streamed(
        {"type": "message_start", "message": {"role": "assistant", "content": []}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "look "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "first"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s1"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": REDACTED},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 2},
    )
    assert found == [block("look first", "s1"), block("", "enc")]
    assert wanted == [False, *[True] * 7, *[False] * 3]
    assert streamed({"type": "response.output_item.done", "item": ITEM})[0] == [block("look", "e")]
    assert streamed({"type": "response.output_item.added", "item": ITEM})[0] == []
    pieces = [{"choices": [{"delta": {"reasoning_content": piece}}]} for piece in ("lo", "ok")]
    assert streamed(*pieces) == ([block("look")], [True, True])
    gemini = [{"candidates": [{"content": {"parts": [part]}}]} for part in ({"text": "lo", "thought": True}, THOUGHT)]
    assert streamed(*gemini)[0] == [block("lolook"), block("", "s3")]
    bedrock = (
        {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "look"}}},
        {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "s2"}}},
        {"contentBlockIndex": 0},
    )
    assert streamed(*bedrock) == ([block("look", "s2")], [True, True, True])
    assert streamed({"index": 0, "delta": {"text": "x"}}, {"index": True}, {"type": "ping"}) == ([], [False] * 3)


def test_an_event_that_brings_reasoning_is_never_passed_over() -> None:
    for text in ('{"thinking":"x"}', '{"type":"signature_delta"}', '{"reasoningContent":1}', '{"thought":true}'):
        assert may_reason(text)
    assert not may_reason('{"delta":{"text":"hello"}}')


def test_what_is_longer_than_may_be_sent_is_cut_and_its_digest_is_of_all() -> None:
    whole = [block("a" * MAX_CHARS), block("b" * 10, "s" * 5_000)]
    kept = reasoning_of(whole)
    assert kept is not None
    assert sum(len(one.text) for one in kept.blocks) == MAX_CHARS
    assert kept.text.endswith("b" * 10)
    assert kept.bound == kept.digest != digest_of(kept.blocks)
    assert read_reasoning(kept.to_wire()) == kept
    short = reasoning_of([block("look", "s1")])
    assert short is not None
    assert (short.digest, short.bound) == ("", digest_of([block("look", "s1")]))
    assert reasoning_of([block()]) is None
    assert reasoning_of([], changed=1) is not None


def test_lone_surrogates_are_digested_in_answers_and_refused_in_calls() -> None:
    assert reasoning_of([block("\ud800", "\ud800")]) is not None
    with pytest.raises(InvalidCall):
        read_reasoning({"blocks": [{"text": "\ud800"}]})
