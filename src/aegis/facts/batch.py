"""Many short strings looked at in one go: what most of them have nothing of is asked once a batch, not once each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_SIZE: Final = 16_384  # characters of one batch; a longer string is a batch of its own


class Batch(NamedTuple):
    """The strings from `first` up to `last`, the latter excluded, and all of them as lines of one text."""

    first: int
    last: int
    together: str


def batches(values: Sequence[str]) -> Iterator[Batch]:
    """The strings of `values` in their order, cut into batches."""
    first = size = 0
    for index, value in enumerate(values):
        if index > first and size + len(value) > _SIZE:
            yield Batch(first, index, "\n".join(values[first:index]))
            first, size = index, 0
        size += len(value)
    if values:
        yield Batch(first, len(values), "\n".join(values[first:]))
