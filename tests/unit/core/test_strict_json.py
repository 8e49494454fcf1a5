from __future__ import annotations

import pytest

from aegis.core.json import parse
from aegis.errors import InvalidCall


@pytest.mark.parametrize(
    "data",
    [
        b"", b" ", b"NaN", b"Infinity", b"-Infinity", b"1e400", b"[1,]", b"{'a':1}", b"[1] 2", b"01", b"+1", b".5",
        b'"\xff"', b'"\\ud800"', b'"\\ud800\\u0041"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf{}", b'"\x01"', b'"a\nb"',
        b"\x00", b"[", b'{"a"}', b"nul", b"9" * 5_000, b"[" * 100_000, b"[" * 2_000 + b"]" * 2_000,
    ],
)  # fmt: skip
def test_what_parsers_could_read_differently_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidCall) as caught:
        parse(data)
    assert caught.value.status == 422


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'{ "x" : [ { "k" : 1 , "k" : 1 } ] }',
        b'{"a":{"b":1,"b":2}}',
        b'[{"\xc3\xa9":1,"\\u00e9":2}]',
    ],
)
def test_duplicate_keys_are_refused_at_any_depth_and_spelling(data: bytes) -> None:
    with pytest.raises(InvalidCall) as caught:
        parse(data)
    assert caught.value.code == "duplicate_key"


def test_large_integers_keep_their_digits() -> None:
    assert parse(b"[18446744073709551617, -9007199254740993]") == [18446744073709551617, -9007199254740993]


def test_keys_that_differ_only_in_normal_form_are_two_keys() -> None:
    assert len(parse('{"e\u0301":1,"\u00e9":2}'.encode())) == 2


def test_a_refusal_never_quotes_the_data() -> None:
    with pytest.raises(InvalidCall) as caught:
        parse(b'{"password": "hunter2" oops}')
    assert "hunter2" not in caught.value.message + caught.value.hint
    assert "oops" not in caught.value.message + caught.value.hint


def test_deep_values_that_the_fast_serialiser_cannot_write_are_still_read() -> None:
    assert parse(b"[" * 300 + b"]" * 300)
