from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Any

import pytest

from aegis.core.canonical import MAX_DIGITS, MAX_NESTING, MAX_VALUES, canonical
from aegis.errors import InvalidCall

SAFE = 2**53 - 1


def nested(levels: int, leaf: object) -> object:
    value = leaf
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, b"null"),
        (True, b"true"),
        (False, b"false"),
        ("", b'""'),
        ([], b"[]"),
        ({}, b"{}"),
        (0, b"0"),
        (-0.0, b"0"),
        (1.0, b"1"),
        (0.1, b"0.1"),
        ([True, None, 1.5], b"[true,null,1.5]"),
        ([False, 1.5, ()], b"[false,1.5,[]]"),
        ((1, "a"), b'[1,"a"]'),
        ({"b": 1, "a": [1.5, {"d": 1, "c": 2}]}, b'{"a":[1.5,{"c":2,"d":1}],"b":1}'),
        (SAFE, b"9007199254740991"),
        (SAFE + 1, b"9007199254740992"),
        (-SAFE, b"-9007199254740991"),
        (-SAFE - 1, b"-9007199254740992"),
    ],
)
def test_known_values(value: object, expected: bytes) -> None:
    assert canonical(value) == expected


# RFC 8785, appendix B.
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5e-324, b"5e-324"),
        (-5e-324, b"-5e-324"),
        (1.7976931348623157e308, b"1.7976931348623157e+308"),
        (9007199254740992.0, b"9007199254740992"),
        (295147905179352830000.0, b"295147905179352830000"),
        (9.999999999999997e22, b"9.999999999999997e+22"),
        (1e23, b"1e+23"),
        (999999999999999700000.0, b"999999999999999700000"),
        (1e21, b"1e+21"),
        (9.999999999999997e-7, b"9.999999999999997e-7"),
        (0.000001, b"0.000001"),
        (333333333.33333329, b"333333333.3333333"),
        (1424953923781206.2, b"1424953923781206.2"),
    ],
)
def test_numbers_of_the_standard(value: float, expected: bytes) -> None:
    assert canonical(value) == expected


# RFC 8785, 3.2.3: the order is that of UTF-16 code units, not of code points.
def test_keys_of_the_standard_are_sorted_by_code_units() -> None:
    value = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    order = [b"Carriage", b"One", b"Control", b"Latin", b"Euro", b"Emoji", b"Hebrew"]
    at = [canonical(value).index(word) for word in order]
    assert at == sorted(at)


def test_keys_that_differ_behind_their_first_letter_are_sorted_by_code_units_too() -> None:
    assert canonical({"a\ue000": 1, "a\U0001f600": 2}) == '{"a\U0001f600":2,"a\ue000":1}'.encode()


def test_the_limits_are_those_that_are_documented() -> None:
    assert (MAX_NESTING, MAX_VALUES, MAX_DIGITS) == (200, 4_000_000, 4_000)


@pytest.mark.parametrize("value", [float("nan"), [1, float("inf")], {"a": float("-inf")}])
def test_numbers_that_json_lacks_are_named(value: object) -> None:
    with pytest.raises(InvalidCall, match="NaN or infinite"):
        canonical(value)


def test_nested_objects_are_bounded_behind_a_float_too() -> None:
    value: object = 1
    for _ in range(MAX_NESTING):
        value = {"k": value}
    with pytest.raises(InvalidCall) as caught:
        canonical({"a": 0.5, "b": value})
    assert caught.value.code == "too_deep"


def test_integers_that_differ_in_the_last_digit_differ() -> None:
    assert canonical(10**30) != canonical(10**30 + 1)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_may_have_the_stated_digits_and_no_more(sign: int) -> None:
    largest = sign * (10**MAX_DIGITS - 1)
    assert canonical(largest) == str(largest).encode()
    for beyond in (sign * 10**MAX_DIGITS, sign * 10**50_000):
        with pytest.raises(InvalidCall) as caught:
            canonical([beyond])
        assert caught.value.code == "too_large"


@pytest.mark.parametrize("leaf", [1, 1.5, "x", 2**60, None])
def test_nesting_is_bounded_alike_on_both_paths(leaf: object) -> None:
    assert canonical(nested(MAX_NESTING, leaf)).startswith(b"[" * (MAX_NESTING - 1))
    for beyond in (nested(MAX_NESTING + 1, leaf), [1.5, nested(MAX_NESTING, leaf)], {"a": nested(MAX_NESTING, leaf)}):
        with pytest.raises(InvalidCall) as caught:
            canonical(beyond)
        assert caught.value.code == "too_deep"
    assert canonical({"a": nested(MAX_NESTING - 1, leaf), "b": 0.5})


def test_a_cycle_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(InvalidCall):
        canonical(cycle)


@pytest.mark.parametrize("first", [None, 0.5])
def test_a_value_that_unfolds_exponentially_is_refused_in_bounded_memory(
    first: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aegis.core.canonical.MAX_VALUES", 1_000)
    value: list[Any] = [first, first]
    for _ in range(100):
        value = [value, value]
    with pytest.raises(InvalidCall) as caught:
        canonical([first, value])
    assert caught.value.code == "too_large"


@pytest.mark.parametrize("spoil", [None, 0.5])
def test_a_value_of_the_largest_size_is_accepted(spoil: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aegis.core.canonical.MAX_VALUES", 50)
    assert canonical({"a": spoil, **{str(key): key for key in range(48)}})
    assert canonical([spoil, *range(48)])
    with pytest.raises(InvalidCall):
        canonical([None, *range(49)])


class Word(str, Enum):
    A = "a"


class Number(int):
    pass


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), float("-inf"), "\ud800", {"\udfff": 1}, {1: 1}, {None: 1}, {True: 1}, {1.5: 2},
        b"bytes", object(), {1, 2}, Word.A, Number(3), OrderedDict(a=1), {Word.A: 1},
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused_without_quoting_it(value: object, outer: bool) -> None:
    with pytest.raises(InvalidCall) as caught:
        canonical([0.5, {"x": value}] if outer else value)
    assert "\ud800" not in caught.value.message
    assert caught.value.status == 422


def test_lone_surrogates_are_refused_on_the_careful_path_too() -> None:
    with pytest.raises(InvalidCall):
        canonical([0.5, "\ud800"])


def test_the_value_is_left_as_it_was() -> None:
    value = {"b": [1.5], "a": {"d": 1, "c": 2}}
    canonical(value)
    assert list(value) == ["b", "a"]
