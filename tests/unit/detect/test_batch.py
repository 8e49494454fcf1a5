from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aegis.detect.gather import batches


@given(st.lists(st.one_of(st.text(max_size=40), st.integers(0, 40_000).map(lambda size: "x" * size)), max_size=60))
def test_every_string_stands_in_one_batch_and_a_batch_is_small(values: list[str]) -> None:
    found = list(batches(values))
    assert [number for batch in found for number in range(batch.first, batch.last)] == list(range(len(values)))
    for batch in found:
        assert batch.together == "\n".join(values[batch.first : batch.last])
        assert batch.last - batch.first == 1 or sum(map(len, values[batch.first : batch.last])) <= 16_384
