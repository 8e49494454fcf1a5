"""What the fuzzers run, run once over everything that they begin with; and over what they found."""

from __future__ import annotations

import pytest

from fuzz.content_target import run, seeds


@pytest.mark.claim("DET-13")
def test_every_seed_is_judged() -> None:
    found = seeds()
    assert len(found) > 300
    for seed in found:
        run(seed)


@pytest.mark.claim("DET-13")
@pytest.mark.parametrize("shape", range(10))
@pytest.mark.parametrize("role", range(9))
def test_bytes_that_spell_nothing_are_judged(role: int, shape: int) -> None:
    run(bytes([role, shape + 150]) + b"\xff\xfe{\x00[\"\xed\xa0\x80${ \n$(`'\\u{110000}%u0000&#xd800;\xf0\x9f\x8f\xb4")
