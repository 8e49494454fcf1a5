from __future__ import annotations

import pytest

from aegis.detect.shell.expansions import changed, number, piece

_KNOWN = {"i": "2", "n": "3"}


def _value(name: str) -> str:
    return _KNOWN.get(name, "")


@pytest.mark.parametrize(
    ("text", "operator", "made"),
    [
        ("a/b/c", "%/*", "a/b"),
        ("a/b/c", "%%/*", "a"),
        ("a/b/c", "#*/", "b/c"),
        ("a/b/c", "##*/", "c"),
        ("a.b.c", "%.?", "a.b"),
        ("a1b2", "%[0-9]", "a1b"),
        ("a1b2", "%[!0-9]", "a1b2"),
        ("a-b-c", "/-/+", "a+b-c"),
        ("a-b-c", "//-/\\/", "a/b/c"),
        ("aba", "/#a/x", "xba"),
        ("aba", "/%a/x", "abx"),
        ("abcdef", ":1:2", "bc"),
        ("abcdef", ":i", "cdef"),
        ("abcdef", ": -2", "ef"),
        ("abcdef", ":1:-1", "bcde"),
        ("ab", "^", "Ab"),
        ("ab", "^^", "AB"),
        ("AB", ",,", "ab"),
        ("ab", ":-c", "ab"),
        ("ab", ":+c", "c"),
        ("ab", "%[", "ab"),
    ],
)
def test_what_is_done_with_a_value_is_worked_out(text: str, operator: str, made: str) -> None:
    assert changed(text, operator, _value) == made


@pytest.mark.parametrize(
    ("text", "comes_to"),
    [("1 + i * n", 7), ("(i + 1) % n", 0), ("-n", -3), ("7 / i", 3), ("$i", 2), ("unset", 0)],
)
def test_sums_of_whole_numbers_are_worked_out(text: str, comes_to: int) -> None:
    assert number(text, _value) == comes_to


@pytest.mark.parametrize("text", ["", "1 +", "1 / 0", "i ** n", "1" * 999, "(" * 128, "i = 3", "0x1.5"])
def test_what_is_no_sum_is_not_known(text: str) -> None:
    assert number(text, _value) is None


def test_a_piece_of_a_list_is_counted_from_either_end() -> None:
    assert piece(":1", 4, _value) == slice(1, 5)
    assert piece(":-1:1", 4, _value) == slice(3, 4)
    assert piece(":?", 4, _value) is None
