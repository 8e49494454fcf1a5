"""The compact set of identifiers behaves like a set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aegis.log.records import IdSet


@given(st.lists(st.text(max_size=3)), st.lists(st.text(max_size=3)))
def test_it_holds_what_was_added_and_nothing_else(added: list[str], asked: list[str]) -> None:
    ids, expected = IdSet(), set[str]()
    for name in added:
        assert ids.add(name) == (name not in expected)
        expected.add(name)
    assert len(ids) == len(expected)
    for name in added + asked:
        assert (name in ids) == (name in expected)


def test_it_grows_and_stays_small() -> None:
    ids = IdSet()
    names = [f"id-{number}" for number in range(100_000)]
    assert all(ids.add(name) for name in names)
    assert not any(ids.add(name) for name in names)
    assert all(name in ids for name in names)
    assert not any(f"other-{number}" in ids for number in range(100_000))
    assert len(ids) == 100_000
    assert ids.size_in_bytes <= 100_000 * 32
