from __future__ import annotations

from typing import Any

from aegis.core.outcome import Outcome
from aegis.detect import extract
from aegis.detect.facts import ReadLimits


def test_keys_values_and_large_numbers_are_texts_in_order() -> None:
    texts = extract({"a": ["x", {"b/c": "y"}], "n": 4111111111111111, "small": 7, "none": None}, ReadLimits())
    assert [(text.path, text.value, text.is_key) for text in texts.strings] == [
        ("/a", "a", True),
        ("/n", "n", True),
        ("/small", "small", True),
        ("/none", "none", True),
        ("/a/0", "x", False),
        ("/a/1/b~1c", "b/c", True),
        ("/a/1/b~1c", "y", False),
        ("/n", "4111111111111111", False),
    ]
    assert texts.limits == ()


def test_each_bound_ends_the_walk_with_a_blocking_finding() -> None:
    deep: Any = "x"
    for _ in range(40):
        deep = [deep]
    for value in ({"d": deep}, {"s": ["x"] * 20_000}, {"b": "x" * 2_000_000}, {"n": 10**100}):
        limits = extract(value, ReadLimits()).limits
        assert [(finding.category, finding.outcome) for finding in limits] == [("resource_limit", Outcome.BLOCK)]


def test_a_value_at_the_bounds_is_walked_whole() -> None:
    deep: Any = "x"
    for _ in range(31):
        deep = [deep]
    texts = extract({"d": deep}, ReadLimits())
    assert texts.limits == ()
    assert texts.strings[-1].value == "x"


def test_an_object_of_plain_texts_keeps_to_the_same_bounds() -> None:
    value = {"a": "xy", "b": "z"}
    for strings, size, ended in ((4, 5, []), (3, 5, ["limit-strings"]), (4, 4, ["limit-bytes"])):
        texts = extract(value, ReadLimits(max_strings=strings, max_bytes=size))
        assert [finding.rule for finding in texts.limits] == ended
    assert [text.path for text in extract({"o": value}, ReadLimits()).strings] == ["/o", "/o/a", "/o/b", "/o/a", "/o/b"]
