"""Only one object of exactly this shape is an answer; everything else rejects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.judges.values import Malformed, read_answer

GOOD: dict[str, Any] = {"score": 0.9, "confidence": 1, "reasoning": "fine", "signals": [], "metadata": {}}
TEXT = json.dumps(GOOD)


@pytest.mark.parametrize("text", [TEXT, f"  {TEXT}\n", f"```json\n{TEXT}\n```", f"```\n{TEXT}\n```\n"])
def test_bare_and_in_one_fence(text: str) -> None:
    result = read_answer(text)
    assert (result.score, result.confidence, result.reasoning) == (0.9, 1.0, "fine")


def test_signals_are_read() -> None:
    signals = [{"category": "scope", "score": 0, "message": "it goes elsewhere"}]
    result = read_answer(json.dumps({**GOOD, "signals": signals}))
    assert (result.signals[0].category, result.signals[0].score) == ("scope", 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "0.9", '"yes"', f"{TEXT}{TEXT}", f"{TEXT} {TEXT}", f"Sure: {TEXT}", f"{TEXT}\nThank you.",
        f"```json\n{TEXT}\n```\nI hope this helps", f"Here:\n```json\n{TEXT}\n```", f"```json\n{TEXT}",
        f"```json\n{TEXT}\n```\n```json\n{TEXT}\n```", f"```python\n{TEXT}\n```",
        '{"score": 0.9, "score": 0.1, "confidence": 1, "reasoning": "", "signals": [], "metadata": {}}',
        '{"score": NaN, "confidence": 1, "reasoning": "", "signals": [], "metadata": {}}',
        '{"score": Infinity, "confidence": 1, "reasoning": "", "signals": [], "metadata": {}}',
        '{"score": 1e999, "confidence": 1, "reasoning": "", "signals": [], "metadata": {}}',
        TEXT[:-1], "\ud800",
    ],
)  # fmt: skip
def test_anything_else_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        read_answer(text)


@pytest.mark.parametrize(
    "change",
    [
        {"score": "0.9"}, {"score": True}, {"score": -0.01}, {"score": 1.01}, {"score": None}, {"confidence": "1"},
        {"reasoning": 3}, {"reasoning": "x" * 20_000}, {"signals": {}}, {"signals": ["x"]}, {"metadata": []},
        {"signals": [{"category": "a", "score": 2, "message": "m"}]}, {"signals": [{"category": "a", "score": 1}]},
        {"approve": True}, {"signals": [{"category": "a", "score": 1, "message": "m", "more": 1}]},
    ],
)  # fmt: skip
def test_members_are_of_their_types_and_ranges(change: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read_answer(json.dumps({**GOOD, **change}))


@pytest.mark.parametrize("name", sorted(GOOD))
def test_no_member_may_be_missing(name: str) -> None:
    with pytest.raises(Malformed):
        read_answer(json.dumps({key: value for key, value in GOOD.items() if key != name}))


@given(st.text(max_size=200))
def test_no_text_makes_the_reader_fail_otherwise(text: str) -> None:
    with pytest.raises(Malformed):
        read_answer(text)
