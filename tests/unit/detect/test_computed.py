"""Functions of values: none fails, whatever a program gives it, and numbers are read as they are written."""

from __future__ import annotations

from itertools import product

import pytest

from aegis.detect.languages.computed import COMPUTED
from aegis.detect.languages.followed import HOLE, MAX_ITEMS, UNKNOWN, FollowedValue
from aegis.detect.languages.numeric import counted, number_of, operated

_TEXTS = ("", "0", "-7", "0xBb", "08", "/srv/a.b", HOLE, "C*", "9" * 30, "\ud800", "z-a")
_VALUES = (
    *(FollowedValue((text,), number=number) for text in _TEXTS for number in (True, False)),
    FollowedValue(),
    FollowedValue((), (UNKNOWN, FollowedValue(), counted(3))),
    FollowedValue((HOLE,), (), (("length", counted(10**6)),)),
)


@pytest.mark.parametrize("name", sorted(COMPUTED))
def test_no_function_fails_or_makes_more_than_is_followed(name: str) -> None:
    for every in ((), *((one,) for one in _VALUES), *product(_VALUES, repeat=2)):
        assert len(COMPUTED[name](every).items) <= MAX_ITEMS


@pytest.mark.parametrize(
    ("written", "number"), [("0o755", 0o755), ("0755", 0o755), ("0xBb", 187), ("0b11", 3), ("08", 8), ("1_000", 1000)]
)
def test_a_number_is_read_as_it_is_written(written: str, number: int) -> None:
    assert number_of(FollowedValue((written,), number=True)) == number
    assert number_of(FollowedValue((f"{written}é",), number=True)) is None


def test_operations_of_numbers_stay_small() -> None:
    assert operated("<<", counted(1), counted(11)) == counted(2048)
    assert operated("**", UNKNOWN, counted(0)) == counted(1)
    assert operated("<<", counted(1), counted(10**9)) is None
    assert operated("%", counted(1), counted(0)) is None
    assert counted(1 << 80) == UNKNOWN
