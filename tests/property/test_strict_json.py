from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.core.canonical import canonical
from aegis.core.json import parse
from aegis.errors import InvalidCall

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | text | numbers,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


@given(values, st.sampled_from([None, 1]), st.booleans())
def test_every_spelling_of_a_value_reads_as_that_value(value: Any, indent: int | None, ascii_only: bool) -> None:
    read = parse(json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode())
    assert read == value
    assert canonical(read) == canonical(value)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_like_the_standard_parser_reads_them_or_refused(data: bytes) -> None:
    try:
        read = parse(data)
    except InvalidCall:
        return
    assert repr(read) == repr(json.loads(data))


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers()), min_size=1, max_size=5))
def test_an_object_is_read_if_and_only_if_its_keys_are_distinct(pairs: list[tuple[str, int]]) -> None:
    data = "{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}"
    if len({key for key, _ in pairs}) == len(pairs):
        assert parse(data.encode()) == dict(pairs)
    else:
        with pytest.raises(InvalidCall) as caught:
            parse(data.encode())
        assert caught.value.code == "duplicate_key"
