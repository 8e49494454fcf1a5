"""Names that look the same are the same: normalisation, full-match selectors, and patterns over segmented names.

A selector is `tool`, `server/tool`, or either with explicit `*`; it matches whole names, never
prefixes. A selector without a server matches the tool on every server.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

# What is drawn as nothing and is not of category Cf: the rest of Unicode's Default_Ignorable_Code_Point
# (DerivedCoreProperties.txt), so that one of them inside a name does not make another name.
_IGNORED: Final = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2065, 0x2065), (0x3164, 0x3164),
        (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF),
    )
    for code in range(first, last + 1)
)  # fmt: skip


@lru_cache(maxsize=4_096)
def normalise_name(name: str) -> str:
    """NFKC, case-folded, without characters that are drawn as nothing and without outer blanks."""
    if name.isascii():
        return name.strip().lower()
    folded = unicodedata.normalize("NFKC", name).casefold()
    visible = "".join(char for char in folded if char not in _IGNORED and unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", visible).strip()


def glob_match(pattern: str, name: str) -> bool:
    """Whether `pattern` (with `*` for any run of characters) matches all of `name`.

    Time grows with the product of the lengths at worst; names are bounded by `MAX_NAME_CHARS`.
    """
    parts = pattern.split("*")
    if len(parts) == 1:
        return pattern == name
    first, *middle, last = parts
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def split_selector(selector: str) -> tuple[str | None, str]:
    """`server/tool` as its two halves; without a slash the server is `None`. The last slash divides."""
    server, slash, tool = selector.rpartition("/")
    return (server if slash else None), tool


class Selector:
    """One compiled selector; `exact` says that it names one tool, without any `*`."""

    __slots__ = ("exact", "server", "text", "tool")

    def __init__(self, text: str):
        server, tool = split_selector(text)
        self.text = text
        self.server = None if server is None else normalise_name(server)
        self.tool = normalise_name(tool)
        # Of the normalised text: a full-width asterisk is an asterisk too.
        self.exact = "*" not in self.tool and "*" not in (self.server or "")

    def matches(self, server: str | None, tool: str) -> bool:
        """Whether this selector covers the tool; a selector without server covers every server."""
        if self.server is not None and (server is None or not glob_match(self.server, normalise_name(server))):
            return False
        return glob_match(self.tool, normalise_name(tool))


class SelectorMap(Generic[T]):
    """Looks a tool up in a table keyed by selectors; the most specific selector wins.

    Order: exact `server/tool`, exact `tool`, patterns that name a server, other patterns; among
    patterns the one with more literal characters first. Exact entries cost one dictionary look-up
    whatever the size of the table.
    """

    def __init__(self, entries: Mapping[str, T]):
        self._exact: dict[tuple[str | None, str], T] = {}
        patterns: list[tuple[Selector, T]] = []
        for text, value in entries.items():
            selector = Selector(text)
            if selector.exact:
                self._exact[(selector.server, selector.tool)] = value
            else:
                patterns.append((selector, value))
        patterns.sort(key=lambda entry: (entry[0].server is None, -len(entry[0].text.replace("*", ""))))
        self._patterns = tuple(patterns)
        self.is_empty = not entries

    def find(self, server: str | None, tool: str) -> T | None:
        """The value of the most specific selector that covers the tool, or `None`."""
        name = normalise_name(tool)
        if server is not None:
            exact = self._exact.get((normalise_name(server), name))
            if exact is not None:
                return exact
        exact = self._exact.get((None, name))
        if exact is not None:
            return exact
        for selector, value in self._patterns:
            if selector.matches(server, tool):
                return value
        return None


# Patterns over names that are made of segments: matching, inclusion and overlap.
#
# `*` stands for any run of characters inside one segment, a segment `**` for any number of segments. Inclusion is
# sound: where `covers` says yes, every name of the inner pattern matches the outer one.

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
