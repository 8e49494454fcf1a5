from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from aegis.core.canonical import canonical, canonical_record
from aegis.core.json import parse
from aegis.errors import InvalidCall

SAFE = 2**53 - 1
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False)


def values(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | text | numbers
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=20
    )


def oracle(value: Any) -> bytes:
    data = rfc8785.dumps(value)
    assert isinstance(data, bytes)
    return data


@given(values(floats | st.integers(-SAFE, SAFE)))
@example({"\ue000": 1, "\U0001f600": 2, "\ufb33": 3, "a": 4})
@example({"\uffff": 1, "\U00010000": 2})
@example([1e21, 1e-7, -0.0, 5e-324, 1.7976931348623157e308, 333333333.33333329])
@example({"\u20ac": '\u0080\u000f\n"\\/', "\r": "</script>"})
def test_canonical_bytes_equal_the_reference_implementation(value: Any) -> None:
    assert canonical(value) == oracle(value)


@given(values(st.integers(-SAFE, SAFE)), floats)
def test_fast_and_careful_paths_agree(value: Any, number: float) -> None:
    # A float anywhere sends the whole value down the careful path.
    assert canonical([number, value]) == b"[" + oracle(number) + b"," + canonical(value) + b"]"


@given(values(floats | st.integers()))
def test_canonical_bytes_read_back_as_the_same_value(value: Any) -> None:
    data = canonical(value)
    assert canonical(json.loads(data)) == data


@given(st.integers(SAFE + 1, 10**300) | st.integers(-(10**300), -SAFE - 1))
def test_integers_beyond_the_safe_range_keep_every_digit(value: int) -> None:
    assert canonical({"n": value}) == b'{"n":' + str(value).encode() + b"}"
    assert parse(canonical([value])) == [value]


@given(
    st.dictionaries(st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1), text | st.integers(-SAFE, SAFE) | st.booleans())
)
def test_records_are_written_like_any_other_value(record: dict[str, Any]) -> None:
    assert canonical_record(record) == canonical(record)


junk = st.binary() | st.sets(st.integers()) | st.just(object()) | st.complex_numbers() | st.tuples(st.binary())


@given(junk, st.booleans())
def test_what_is_not_json_is_refused(value: object, inside: bool) -> None:
    with pytest.raises(InvalidCall):
        canonical({"a": [value, 0.5]} if inside else value)
