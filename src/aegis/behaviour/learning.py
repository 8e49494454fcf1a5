"""What an agent usually does, learned call by call in four kilobytes, and how far a call is from it.

A call is a handful of values, each in a context: the host of `fetch`, the recipient of `send_email`, the hour. Of each
value it is known whether it was there before; of each context, how many calls went by since it last brought something
new. A value that is new where nothing new came for long is surprising by the logarithm of that run, in bits: where
every second call is to another host, another host says nothing. The surprise of a call is the sum over its contexts,
and an agent's own past says how much of it is usual.

Everything is a function of the calls in their order: no clock is read, and nothing is random.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import log2
from operator import attrgetter
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from aegis.core.times import MICROS

SLOTS: Final = 512  # values and contexts that are known of one agent
_WAYS: Final = 4
SETTLED: Final = 200  # calls whose surprise says nothing of what is usual
_SAMPLED: Final = 4
_GROUPS: Final = SLOTS // _WAYS
_BUCKETS: Final = 32  # of the histogram of surprise, one bit each
_MOST: Final = 65_535
MAX_STRINGS: Final = 24  # strings of one call that are looked at
MAX_CHARS: Final = 512  # of one string
MAX_WORD: Final = 24  # characters of a string that counts by itself
MAX_VALUES: Final = 40  # values of one call: bounds what a call costs
LEAST_BITS: Final = 8.0  # surprise below which nothing is called unusual
USUAL_SHARE: Final = 1_500  # one call in so many of the agent's own past may be as surprising
DRIFT_BITS: Final = 400  # surprise that one day may teach: bounds how fast an agent's usual can be moved
TAUGHT: Final = 8  # how often a call counts that a person called fine
_DAY_US: Final = 86_400 * MICROS
_HOUR_US: Final = 3_600 * MICROS
_MINUTE_US: Final = 60 * MICROS
_HEAD: Final = struct.Struct("<IIQQHHIf")
_VALUE: Final = attrgetter("value")


class CallValue(NamedTuple):
    """One value of a call in its context; `near` are values that count as the same where they are known."""

    kind: str
    context: int
    value: int
    shown: str
    near: tuple[int, ...] = ()


class LearnedCall(NamedTuple):
    """One call as it is learned: when (microseconds), its tool, and its values."""

    time: int
    tool: int
    values: Sequence[CallValue]


class Surprise(NamedTuple):
    """How far a call is from what is usual: bits, how many are called unusual, and the largest reasons in words.

    `values` are those that were looked at, with the place of each that is known, and -1 for one that is new.
    """

    bits: float
    limit: float
    reasons: tuple[str, ...]
    values: Sequence[tuple[CallValue, int]]

    @property
    def is_unusual(self) -> bool:
        return self.bits > self.limit


@lru_cache(maxsize=65_536)
def _hash(*parts: str | int) -> int:
    """32 bits that are never 0."""
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=4, person=b"aegis.usual").digest()) or 1


class AgentModel:
    """What is usual of one agent. `learned` counts the calls that taught it."""

    __slots__ = ("_bits", "_counts", "_day", "_drift", "_last", "_minute", "_rate", "_tags", "learned", "since")

    def __init__(self) -> None:
        self._tags = array("I", bytes(4 * SLOTS))
        self._counts = array("H", bytes(2 * SLOTS))
        self._bits = array("H", bytes(2 * _BUCKETS))
        self.learned = 0
        self.since = 0
        self._last = 0  # tool of the call before
        self._minute = 0
        self._rate = 0
        self._day = 0
        self._drift = 0.0

    def score(self, called: LearnedCall) -> Surprise:
        """How surprising a call is now; nothing is learned by it."""
        asked = (*called.values, *self._own(called))
        values = list(zip(asked, self._find(map(_VALUE, asked)), strict=True))
        found: list[tuple[float, str, str]] = []
        of_tool = -1
        for index, (value, place) in enumerate(values):
            if place < 0 and value.near:
                place = max(self._find(value.near))
                values[index] = (value, place)
            if place >= 0:
                continue
            if of_tool < 0:
                (at,) = self._find((called.tool,))
                of_tool = self._counts[at] if at >= 0 else 0
            if not of_tool and value.kind in _OF_TOOL:
                continue  # a tool that is new has told already what is new about its arguments
            (at,) = self._find((value.context,))
            bits = log2(1 + (self._counts[at] if at >= 0 else of_tool))
            if bits >= 1:
                found.append((bits, f"{_SAID[value.kind]} {value.shown}".strip(), value.kind))
        if not found:
            return Surprise(0.0, LEAST_BITS, (), values)
        found.sort(key=lambda one: -one[0])
        reasons = tuple(said for _, said, _ in found[:3])
        kinds: dict[str, float] = {}
        for bits, _, kind in found:  # three words that are new say no more than the one that surprises most
            kinds.setdefault(kind, bits)
        return Surprise(sum(kinds.values()), self.limit, reasons, values)

    @property
    def limit(self) -> float:
        """How many bits are called unusual: more than one call in so many of its own past had."""
        allowed, tail = max(1.0, self.learned / USUAL_SHARE), 0
        for bucket in range(_BUCKETS - 1, 0, -1):
            tail += self._bits[bucket]
            if tail > allowed:
                return max(LEAST_BITS, float(bucket + 1))
        return LEAST_BITS

    def learn(self, called: LearnedCall, surprise: Surprise, *, taught: bool = False) -> None:
        """Learn from a call that ran, by what `score` just said of it; `taught` says that a person called it fine.

        What is new is learned up to a bound a day: whoever moves what is usual by small steps needs many days.
        """
        day = called.time // _DAY_US
        if day > self._day:
            self._day, self._drift = day, 0.0
        mature = self.learned >= SLOTS
        may_drift = taught or not mature or self._drift < DRIFT_BITS
        if not taught and surprise.bits and self.learned >= SETTLED:
            bucket = min(_BUCKETS - 1, int(surprise.bits))
            self._bits[bucket] = min(_MOST, self._bits[bucket] + 1)
            if mature:
                self._drift += surprise.bits
        times = TAUGHT if taught else 1
        tags, counts = self._tags, self._counts
        values = surprise.values
        if mature and not taught and not surprise.reasons:
            # Of an agent that is known, of calls that bring nothing new, one in four stands for all.
            times, values = _SAMPLED, values if self.learned % _SAMPLED == 0 else ()
        for value, known in values:
            if known < 0 and not may_drift:
                continue
            # What is known by what lies near it is entered too, so that it is known by itself.
            for key in (value.value, value.context):
                start = key % _GROUPS * _WAYS
                try:
                    place = tags.index(key, start, start + _WAYS)
                except ValueError:  # where its group is full, it takes the place of what was there least often
                    place = min(range(start, start + _WAYS), key=counts.__getitem__)
                    tags[place], counts[place] = key, 0
                if known >= 0 or key == value.value:
                    counts[place] = min(_MOST, counts[place] + times)
                else:
                    counts[place] = max(1, counts[place] // 4)
        minute = called.time // _MINUTE_US
        if minute == self._minute:
            self._rate += 1
        elif minute > self._minute:  # a clock that is set back begins no new minute
            self._minute, self._rate = minute, 1
        self._last = called.tool
        self.since = self.since or called.time
        self.learned += 1

    def _own(self, called: LearnedCall) -> Sequence[CallValue]:
        """The values that the calls before make: order and rate."""
        rate = self._rate + 1 if called.time // _MINUTE_US <= self._minute else 1
        quick = _rate(min(_MOST, rate).bit_length())
        return (quick, _order(self._last, called.tool)) if self._last else (quick,)

    def _find(self, keys: Iterable[int]) -> list[int]:
        """The places of values, -1 for one that is not known."""
        index, places = self._tags.index, []
        for key in keys:
            start = key % _GROUPS * _WAYS
            try:
                places.append(index(key, start, start + _WAYS))
            except ValueError:
                places.append(-1)
        return places

    def encode(self) -> bytes:
        """The model as bytes; `decode` gives it back."""
        head = _HEAD.pack(
            self.learned, self._last, self.since, self._minute, min(_MOST, self._rate), 0, self._day, self._drift
        )
        return head + self._tags.tobytes() + self._counts.tobytes() + self._bits.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> AgentModel:
        """The model that `encode` wrote; raises `ValueError` for anything else."""
        if len(data) != _HEAD.size + 6 * SLOTS + 2 * _BUCKETS:
            raise ValueError("not a model of an agent")
        model = cls()
        model.learned, model._last, model.since, model._minute, model._rate, _, model._day, model._drift = (
            _HEAD.unpack_from(data)
        )
        at = _HEAD.size
        model._tags = array("I", data[at : at + 4 * SLOTS])
        model._counts = array("H", data[at + 4 * SLOTS : at + 6 * SLOTS])
        model._bits = array("H", data[at + 6 * SLOTS :])
        return model


_OF_TOOL: Final = frozenset({"order", "shape", "size", "effects", "number", "word"})
_SAID: Final[Mapping[str, str]] = {
    "tool": "first call of",
    "order": "a tool that never followed the one before",
    "rate": "never so quick before:",
    "hour": "never at",
    "shape": "arguments that it never gave to",
    "size": "another size than usual:",
    "effects": "never did this before:",
    "number": "another magnitude than usual:",
    "word": "never said before:",
    "host": "first time to",
    "recipient": "first time to",
    "domain": "first time to anybody at",
    "path": "first time below",
}


def called_of(
    *, time: int, server: str | None, tool: str, arguments: Mapping[str, Any], size: int, effects: Sequence[str]
) -> LearnedCall:
    """One call as it is learned, from what is on record of it."""
    name = f"{server}/{tool}" if server else tool
    values = [
        _tool(name),
        _hour(time // _HOUR_US % 24),
        _shape(name, tuple(arguments)),
        _magnitude("size", name, "bytes", size.bit_length()),
        _effects(name, tuple(effects)),
    ]
    strings = 0
    for key, item in _leaves(arguments):
        if isinstance(item, str):
            strings += 1
            if strings > MAX_STRINGS:
                break
            values += _of_string(name, key, item[:MAX_CHARS])
        elif isinstance(item, int | float) and not isinstance(item, bool):
            values.append(_magnitude("number", name, key, int(min(abs(item), 2**60)).bit_length()))
    return LearnedCall(time, values[0].value, values[:MAX_VALUES])


def _leaves(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Numbers and strings, two levels deep; items of a list count as their list."""
    found: list[tuple[str, Any]] = []
    for key, item in value.items():
        if isinstance(item, dict):
            found += [(inner, leaf) for inner, leaf in item.items() if not isinstance(leaf, dict | list)]
        elif isinstance(item, list):
            found += [(key, leaf) for leaf in item[:MAX_STRINGS] if not isinstance(leaf, dict | list)]
        else:
            found.append((key, item))
    return found


# Values are made once and kept: most calls are made of values that were there before.

_kept = lru_cache(maxsize=16_384)


def _of_string(name: str, key: str, text: str) -> Sequence[CallValue]:
    """The hosts, recipients and paths that a string names; a short word counts by itself."""
    at = text.find("://")
    if at >= 0:
        begins = text.rfind(" ", 0, at) + 1
        host = _host(text[begins:].split(" ", 1)[0])
        return (_named("host", name, host),) if host else ()
    if "@" in text and " " not in text:
        return _named("recipient", name, text.lower()), _named("domain", name, text.rpartition("@")[2].lower())
    if "/" in text and " " not in text:
        parts = text.split("/", 3)
        return (_named("path", name, "/".join(parts[:3]) if text.startswith("/") else parts[0]),)
    return (_word(name, key, text),) if len(text) <= MAX_WORD else ()


def _host(text: str) -> str:
    try:
        return (urlsplit(text).hostname or "").lower()
    except ValueError:
        return ""


@_kept
def _tool(name: str) -> CallValue:
    return CallValue("tool", _hash("c.tool"), _hash("tool", name), f"`{name}`")


@lru_cache(maxsize=24)
def _hour(hour: int) -> CallValue:
    near = (_hash("hour", (hour - 1) % 24), _hash("hour", (hour + 1) % 24))
    return CallValue("hour", _hash("c.hour"), _hash("hour", hour), f"{hour} h UTC", near)


@_kept
def _shape(name: str, keys: tuple[str, ...]) -> CallValue:
    return CallValue("shape", _hash("c.shape", name), _hash("shape", name, *sorted(keys)), f"`{name}`")


@_kept
def _effects(name: str, effects: tuple[str, ...]) -> CallValue:
    return CallValue(
        "effects", _hash("c.effects", name), _hash("effects", name, *effects), ", ".join(effects) or "nothing"
    )


@_kept
def _named(kind: str, name: str, text: str) -> CallValue:
    return CallValue(kind, _hash(f"c.{kind}", name), _hash(kind, text), f"`{text}`")


@_kept
def _word(name: str, key: str, text: str) -> CallValue:
    return CallValue("word", _hash("c.word", name, key), _hash("word", name, key, text), f"`{key}` of `{name}`")


@_kept
def _order(last: int, tool: int) -> CallValue:
    return CallValue("order", _hash("c.order"), _hash("order", last, tool), "")


@lru_cache(maxsize=32)
def _rate(step: int) -> CallValue:
    """A rate by its order of magnitude: who was quicker was as quick as this."""
    near = tuple(_hash("rate", other) for other in range(step + 1, 17))
    return CallValue("rate", _hash("c.rate"), _hash("rate", step), f"about {2**step} calls a minute", near)


@_kept
def _magnitude(kind: str, name: str, key: str, step: int) -> CallValue:
    """A number by its order of magnitude; smaller ones than are known, and the next larger, say nothing."""
    near = tuple(
        _hash(kind, name, key, other) for other in range(max(0, step - 1), min(step + 12, 62)) if other != step
    )
    shown = f"`{key}` of `{name}` about {2**step}"
    return CallValue(kind, _hash(f"c.{kind}", name, key), _hash(kind, name, key, step), shown, near)
