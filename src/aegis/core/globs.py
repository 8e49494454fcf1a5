"""Patterns over names that are made of segments: matching, inclusion and overlap.

`*` stands for any run of characters inside one segment, a segment `**` for any number of segments.
Inclusion is sound: where `covers` says yes, every name of the inner pattern matches the outer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from aegis.core.names import glob_match

DEEP: Final = "**"
_ANY: Final = "\ue000"  # stands for an inner pattern's `*`: a private character that no outer literal matches


class Pattern(NamedTuple):
    """One compiled entry; a `literal` one matches itself alone, `*` and all."""

    segments: tuple[str, ...]
    literal: bool


def matches(pattern: Pattern, name: Sequence[str]) -> bool:
    """Whether `pattern` matches all of `name`, given as segments."""
    if pattern.literal:
        return pattern.segments == tuple(name)
    return _match(pattern.segments, name)


def covers(outer: Pattern, inner: Pattern) -> bool:
    """Whether every name that `inner` matches is matched by `outer`."""
    if outer == inner:
        return True
    if outer.literal:
        return False
    if inner.literal:
        return _match(outer.segments, inner.segments)
    return _match(outer.segments, [part if part == DEEP else part.replace("*", _ANY) for part in inner.segments])


def overlap(one: Pattern, other: Pattern) -> bool:
    """Whether some name can match both; says yes where in doubt."""
    if one.literal:
        return matches(other, one.segments)
    if other.literal:
        return matches(one, other.segments)
    return _meet(one.segments, other.segments)


def _match(pattern: Sequence[str], name: Sequence[str]) -> bool:
    """Whether segments match; time is bounded by the product of the lengths."""
    # (1) Up to the first `**` a segment stands for a segment.
    length = len(name)
    start = 0
    for part in pattern:
        if part == DEEP:
            break
        if start == length or name[start] == DEEP or not (part == name[start] or glob_match(part, name[start])):
            return False
        start += 1
    # (2) `ends` are the numbers of segments of `name` that the pattern read so far can have consumed.
    rest = pattern[start:]
    if not rest:
        return start == length
    if len(rest) == 1:  # a `**` at the end takes everything
        return True
    ends = {start}
    for part in rest:
        if part == DEEP:
            ends = set(range(min(ends), len(name) + 1))
        else:
            ends = {at + 1 for at in ends if at < len(name) and name[at] != DEEP and glob_match(part, name[at])}
        if not ends:
            return False
    return len(name) in ends


def _meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    # `rest[j]` says whether what follows in both can meet, for the place in `one` looked at last.
    rest = [False] * (len(other) + 1)
    for i in range(len(one), -1, -1):
        row = [False] * (len(other) + 1)
        for j in range(len(other), -1, -1):
            if i == len(one) and j == len(other):
                row[j] = True
                continue
            if i < len(one) and one[i] == DEEP:
                row[j] = rest[j] or (j < len(other) and row[j + 1])
            if j < len(other) and other[j] == DEEP:
                row[j] = row[j] or row[j + 1] or (i < len(one) and rest[j])
            if not row[j] and i < len(one) and j < len(other) and DEEP not in (one[i], other[j]):
                row[j] = rest[j + 1] and _segments_meet(one[i], other[j])
        rest = row
    return rest[0]


def _segments_meet(one: str, other: str) -> bool:
    """Whether two segments can match the same text, judged by what stands before and after their `*`."""
    if "*" not in one:
        return glob_match(other, one)
    if "*" not in other:
        return glob_match(one, other)
    first, second = one.partition("*")[0], other.partition("*")[0]
    last, final = one.rpartition("*")[2], other.rpartition("*")[2]
    heads = first.startswith(second) or second.startswith(first)
    return heads and (last.endswith(final) or final.endswith(last))
