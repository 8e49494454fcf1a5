"""What an agent usually does, learned call by call in four kilobytes, and how far a call is from it.

A call is a handful of values, each in contexts from narrow to wide: the host of `fetch`, then any host of this agent;
the kind of value in an argument, the recipient of `send_email`, the hour. Of each value it is known whether it was
there before; of each context, how many calls went by since it last brought something new. How often something new came
in contexts known as well is counted for each agent, and says how rare it is, in bits: where every second call is to
another host, another host says nothing. What is new in its own context is asked about in the wider one, given that.
The surprise of a call is the sum over its kinds of values, and has to lie clearly above what the agent's own past had;
or that of one kind has, above the past of this kind: an agent that says something new every day may never have sent
sixty kilobytes.

Everything is a function of the calls in their order: no clock is read, and nothing is random.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from math import log2
from operator import itemgetter
from typing import Final

from msgspec import Struct

from aegis.behaviour.features import (
    BEGINS,
    GROUPS,
    KEY,
    KINDS,
    RATE,
    SAID,
    SLOTS,
    WAYS,
    WORD,
    CallValue,
    LearnedCall,
    order_of,
    probes_in,
    rate_of,
)
from aegis.core.times import MICROS

_MOST: Final = 255  # what a slot counts to
_STEPS: Final = 9  # how well a context is known, in powers of two
_LEVELS: Final = 2  # wider contexts of one value
_RATES: Final = KINDS * (_STEPS + 2 * _LEVELS)
_AGED: Final = 64  # calls after which it is looked whether counts are to be halved
_HALVED: Final = 8_192  # times after which what was counted counts half
_PRIOR: Final = 2.0  # how many times what is known of agents in general counts
_WIDER: Final = 0.25  # share of what is new in one place that is new for the agent too, before anything is known
_BUCKETS: Final = 96  # of the histogram of surprise, half a bit each
SETTLED: Final = 50  # calls whose surprise says nothing of what is usual
MATURE: Final = 512  # calls after which an agent is known: what is new is bounded, what is not new is sampled
_SAMPLED: Final = 8
_LEAST_TOLD: Final = 0.5  # bits of a value below which it is left out
LEAST_BITS: Final = 8.0  # surprise below which nothing is called unusual
MARGIN_BITS: Final = 4.5  # so far above its own past a call has to be
LEAST_OF_KIND: Final = 12.0  # surprise of one kind of value below which it alone makes nothing unusual
MARGIN_OF_KIND: Final = 4.5  # so far above its own past one kind has to be
USUAL_SHARE: Final = 2_500  # one call in so many of the agent's own past may be as surprising
DRIFT_BITS: Final = 200  # surprise that one day may teach: bounds how fast an agent's usual can be moved
LEAST_DRIFT: Final = 4.0  # what a call with anything new takes of it: also what has become common is not free
SNAPSHOT_DAYS: Final = 7  # what new agents of a program begin with is no fresher: warming it up takes long
TAUGHT: Final = 8  # how often a call counts that a person called fine
ALIKE: Final = 16  # calls that were found to bring nothing new, and are known at once when they are made again
_MASK: Final = (1 << 64) - 1
_DAY_US: Final = 86_400 * MICROS
_MINUTE_US: Final = 60 * MICROS
_MOST_RATE: Final = 65_535  # calls of one minute that are told apart
_NOTHING: Final[Mapping[int, int]] = {}
_BITS: Final = itemgetter(0)
_HEAD: Final = struct.Struct("<IIQQHHIf")


_TOLD_BY_CLASS: Final = frozenset({WORD, BEGINS})  # another kind of value is another value: told once
_FAR: Final = 4.0  # bits for each doubling of a rate beyond what is known; sizes have long tails, rates have none


def _wider_of(kind: int, step: int, level: int) -> int:
    """Where it is counted how often what is new in its own context is new in a wider one."""
    return KINDS * _STEPS + (kind * 2 + (step > 0)) * _LEVELS + level


class Surprise(Struct, frozen=True, gc=False):
    """How far a call is from what is usual: bits, how many are called unusual, and the values that make them.

    That is all of a call, or one kind of value where this alone is beyond its own limit. `told` are new values with
    their bits, the largest first. `values` are those of a call that brings anything new, and `fresh` says of those that
    are new in how many contexts, by their number. `kinds` are the bits of each kind.
    """

    bits: float
    limit: float
    told: Sequence[tuple[float, CallValue]]
    values: Sequence[CallValue]
    fresh: Mapping[int, int]
    kinds: Mapping[int, float] = _NOTHING

    @property
    def is_unusual(self) -> bool:
        return self.bits > self.limit

    @property
    def reasons(self) -> tuple[str, ...]:
        """The three largest reasons in words."""
        return tuple(f"{SAID[one.kind]} {one.shown}".strip() for _, one in self.told[:3])


_FAMILIAR: Final = Surprise(0.0, LEAST_BITS, (), (), _NOTHING)


class AgentModel:
    """What is usual of one agent. `learned` counts the calls that taught it."""

    __slots__ = ("_bits", "_counts", "_day", "_drift", "_familiar", "_last", "_minute", "_quickest", "_rate",
                 "_seen", "_tags", "learned", "since")  # fmt: skip

    def __init__(self) -> None:
        # Multiplied, as an array that is made of bytes takes a sixteenth more than it needs.
        self._tags = array("H", [0]) * SLOTS
        self._counts = array("B", [0]) * (
            SLOTS + 2 * KINDS
        )  # behind the places, the two highest surprises of each kind
        self._seen = array("H", [0]) * (2 * _RATES)  # behind how often anything came, how often something new did
        self._bits = array("H", [0]) * _BUCKETS
        self.learned = 0
        self.since = 0
        self._last = 0  # tool of the call before
        self._minute = 0
        self._rate = 0
        self._quickest = 0  # the highest order of magnitude of a whole minute
        self._day = 0
        self._drift = 0.0
        self._familiar = array("Q", [0]) * ALIKE  # fingerprints of calls that bring nothing new

    def score(self, called: LearnedCall) -> Surprise:
        """How surprising a call is now; nothing is learned by it. Before `SETTLED` it is only told what is new."""
        rate = self._rate + 1 if called.time // _MINUTE_US <= self._minute else 1
        step = min(_MOST_RATE, rate).bit_length()
        # Who was quicker, or half as quick, was as quick as this; of whom no minute is known, no rate is unusual.
        is_quick = 0 < self._quickest < step - 1
        alike = hash((called.probe, self._last)) & _MASK
        if not is_quick and alike in self._familiar:
            return _FAMILIAR
        order = order_of(self._last, called.tool) if self._last else None
        probe = called.probe if order is None else called.probe + order.probe
        # One pass finds what is not known by itself; most calls end there.
        tags, settled = self._tags, self.learned >= SETTLED
        unknown = [
            number
            for number, (tag, start, _, _, _) in enumerate(probes_in(probe))
            if tag not in tags[start : start + WAYS]
        ]
        if not unknown:
            self._familiar[self.learned % ALIKE] = alike
            if not is_quick:
                return _FAMILIAR
        values = called.values if order is None else [*called.values, *order.values]
        fresh = dict[int, int]()
        found: list[tuple[float, CallValue]] = []
        for place in unknown:
            value = values[place]
            kind = value.kind
            if kind == KEY and place - 1 not in fresh:
                continue  # an argument that was given with such a value was given
            if self._knows(value.near):
                continue
            levels = fresh[place] = self._levels(value)
            if not settled:
                continue
            bits = self._surprise(value, levels)
            if bits >= _LEAST_TOLD and (kind not in _TOLD_BY_CLASS or place - 2 not in fresh):
                found.append((bits, value))
        if is_quick:
            quick = rate_of(step)
            fresh[len(values)] = 1
            values.append(quick)
            found.append((self._quick_bits(step), quick))
        if not found:
            return Surprise(0.0, LEAST_BITS, (), values, fresh)
        found.sort(key=_BITS, reverse=True)
        kinds: dict[int, float] = {}
        for bits, one in found:  # three words that are new say little more than the one that surprises most
            kinds.setdefault(one.kind, bits)
        bits, limit = sum(kinds.values()), LEAST_BITS
        if bits > LEAST_BITS:
            limit = self.limit
            if bits <= limit:
                kind = max(kinds, key=lambda one: kinds[one] - self._limit_of(one))
                if kinds[kind] > self._limit_of(kind):
                    bits, limit = kinds[kind], self._limit_of(kind)
                    found.sort(key=lambda one: (one[1].kind != kind, -one[0]))
        return Surprise(bits, limit, found, values, fresh, kinds)

    def _limit_of(self, kind: int) -> float:
        """How many bits of one kind of value are called unusual: clearly more than its own past had but once."""
        return max(LEAST_OF_KIND, self._counts[SLOTS + 2 * kind + 1] / 2 + MARGIN_OF_KIND)

    def _enter_top(self, kind: int, bits: float) -> None:
        """Remember the two highest surprises of a kind in half bits; what is beyond the limit counts as being at it."""
        half, counts, first = min(_MOST, int(2 * min(bits, self._limit_of(kind)))), self._counts, SLOTS + 2 * kind
        _, counts[first + 1], counts[first] = sorted((half, counts[first], counts[first + 1]))

    def _levels(self, value: CallValue) -> int:
        """In how many contexts a value is new that is new in its own."""
        return next((level for level, wider in enumerate(value.wider, 1) if self._knows(wider)), len(value.wider) + 1)

    def _surprise(self, value: CallValue, levels: int) -> float:
        """The bits of a value that is new in so many contexts."""
        step = self._step(value.context)
        bits = self._rarity(value.kind * _STEPS + step, 1 / (1 + (1 << step)))
        for level in range(levels - 1):
            bits += self._rarity(_wider_of(value.kind, step, level), _WIDER)
        if levels <= len(value.wider):
            return bits
        away = len(value.further)
        return bits + next((index for index, one in enumerate(value.further) if self._find(one) >= 0), away)

    def _quick_bits(self, step: int) -> float:
        """The bits of a rate that is beyond what is known."""
        return self._surprise(rate_of(step), 1) + _FAR * (step - 1 - self._quickest)

    def _rarity(self, index: int, prior: float) -> float:
        """How rare it was with this agent that something was new there, in bits."""
        return -log2((self._seen[_RATES + index] + _PRIOR * prior) / (self._seen[index] + _PRIOR))

    @property
    def limit(self) -> float:
        """How many bits are called unusual: clearly more than all but one call in so many of its own past had."""
        allowed, tail = 1 + self.learned // USUAL_SHARE, 0
        for bucket in range(_BUCKETS - 1, 0, -1):
            tail += self._bits[bucket]
            if tail > allowed:
                return max(LEAST_BITS, (bucket + 1) / 2 + MARGIN_BITS)
        return LEAST_BITS

    def learn(self, called: LearnedCall, surprise: Surprise, *, taught: bool = False) -> None:
        """Learn from a call that ran, by what `score` just said of it; `taught` says that a person called it fine.

        What is new is learned up to a bound a day, and nothing more on that day, so that what is rare stays as rare as
        it was.
        """
        learned, minute = self.learned, called.time // _MINUTE_US
        mature = learned >= MATURE
        if mature and learned % _SAMPLED and minute == self._minute and not taught and not surprise.fresh:
            # Of an agent that is known, of calls that bring nothing new, one in eight stands for all.
            self._rate += 1
            self._last, self.learned = called.tool, learned + 1
            return
        day = called.time // _DAY_US
        if day > self._day:
            self._day, self._drift = day, 0.0
        may_drift = taught or not mature or self._drift < DRIFT_BITS
        if not taught and may_drift and surprise.kinds and self.learned >= SETTLED:
            # What is beyond the limit counts as being at it: no call lifts the limit far at once. Rates count by the
            # minute alone: else each call of a burst would make room for the next.
            bits = sum(surprise.kinds.values()) - surprise.kinds.get(RATE, 0.0)
            bucket = min(_BUCKETS - 1, int(2 * min(bits, self.limit)))
            self._bits[bucket] = min(65_535, self._bits[bucket] + 1)
            for kind, own in surprise.kinds.items():
                if kind != RATE:
                    self._enter_top(kind, own)
        if mature and may_drift and not taught and surprise.fresh:
            self._drift += max(surprise.bits, LEAST_DRIFT)
        times = TAUGHT if taught else 1
        fresh = surprise.fresh
        is_sampled = mature and not taught and not fresh
        if is_sampled:
            times = _SAMPLED
        index_of, counts, seen = self._tags.index, self._counts, self._seen
        is_learned = may_drift and not (is_sampled and learned % _SAMPLED)
        probe = called.probe if is_learned else b""
        if is_learned and self._last:
            probe += order_of(self._last, called.tool).probe
        # Rates are not among them: they are learned of whole minutes, or a burst would be its own excuse.
        for index, (tag, first, context, start, kind) in enumerate(probes_in(probe)):
            if index in fresh:
                self._learn_new(surprise.values[index], fresh[index], times, rated=not taught)
                continue
            try:
                place = index_of(context, start, start + WAYS)
            except ValueError:
                place = self._place_of(context, start)
            known = counts[place]
            counts[place] = known + times if known + times < _MOST else _MOST
            if not taught:
                seen[kind * _STEPS + known.bit_length()] += times
            try:
                place = index_of(tag, first, first + WAYS)
            except ValueError:  # what is known by what lies near it is entered too, so that it is known by itself
                place = self._place_of(tag, first)
            known = counts[place] + times
            counts[place] = known if known < _MOST else _MOST
        if not self.learned % _AGED:
            self._age()
        if minute == self._minute:
            self._rate += 1
        elif minute > self._minute:  # a clock that is set back begins no new minute
            if self._rate and may_drift:
                step = min(_MOST_RATE, self._rate).bit_length()
                if self._quickest >= step - 1:
                    self._seen[RATE * _STEPS + self._enter(rate_of(step).context, 1)] += 1
                else:
                    if not taught and self.learned >= SETTLED:
                        self._enter_top(RATE, self._quick_bits(step))
                    self._learn_new(rate_of(step), 1, 1, rated=not taught)
                self._quickest = max(self._quickest, step)
            self._minute, self._rate = minute, 1
        self._last = called.tool
        self.since = self.since or called.time
        self.learned += 1

    def _learn_new(self, value: CallValue, levels: int, times: int, *, rated: bool) -> None:
        """Learn a value that is new in so many contexts, and where it is `rated`, that there something new came."""
        self._enter(value.value, times)
        for wider in value.wider[:levels]:
            self._enter(wider[0], times)
        if not rated:
            self._enter(value.context, times)
            return
        place, counts = self._place(value.context), self._counts
        step = counts[place].bit_length()
        counts[place] = max(1, counts[place] // 4)
        rate = value.kind * _STEPS + step
        self._seen[rate] += 1
        self._seen[_RATES + rate] += 1
        for level in range(min(levels, len(value.wider))):
            rate = _wider_of(value.kind, step, level)
            self._seen[rate] += 1
            self._seen[_RATES + rate] += levels > level + 1

    def _age(self) -> None:
        """Let what was counted long ago count half."""
        for index, seen in enumerate(self._seen[:_RATES]):
            if seen > _HALVED:
                self._seen[index] = seen // 2
                self._seen[_RATES + index] //= 2

    def _enter(self, key: int, times: int) -> int:
        """Count a value or context; how well it was known before, in powers of two."""
        place = self._place(key)
        known = self._counts[place]
        self._counts[place] = min(_MOST, known + times)
        return known.bit_length()

    def _step(self, context: int) -> int:
        """How well a context is known: the calls since it brought something new, in powers of two."""
        at = self._find(context)
        return self._counts[at].bit_length() if at >= 0 else 0

    def _knows(self, keys: Sequence[int]) -> bool:
        """Whether one of these values is known."""
        tags = self._tags
        for key in keys:
            start = key % GROUPS * WAYS
            if key >> 16 in tags[start : start + WAYS]:
                return True
        return False

    def replaces(self, snapshot: AgentModel) -> bool:
        """Whether this model is a better beginning for others than `snapshot`, which stands for at least a week."""
        if snapshot.learned < MATURE:
            return self.learned > snapshot.learned
        return self.learned >= MATURE and self._day >= snapshot._day + SNAPSHOT_DAYS

    def _find(self, key: int) -> int:
        """The place of a value, or -1."""
        start = key % GROUPS * WAYS
        try:
            return self._tags.index(key >> 16, start, start + WAYS)
        except ValueError:
            return -1

    def _place(self, key: int) -> int:
        """The place of a value; where its group is full, that of the one that was there least often."""
        return self._place_of(key >> 16, key % GROUPS * WAYS)

    def _place_of(self, tag: int, start: int) -> int:
        """The place of a tag among those that begin at `start`."""
        group = self._tags[start : start + WAYS]
        if tag in group:
            return start + group.index(tag)
        counts = self._counts[start : start + WAYS]
        place = start + counts.index(min(counts))
        if self._tags[place]:  # what was there is known no more
            self._familiar = array("Q", [0]) * ALIKE
        self._tags[place], self._counts[place] = tag, 0
        return place

    def encode(self) -> bytes:
        """The model as bytes; `decode` gives it back."""
        head = _HEAD.pack(
            self.learned,
            self._last,
            self.since,
            self._minute,
            min(_MOST_RATE, self._rate),
            self._quickest,
            self._day,
            self._drift,
        )
        return head + b"".join(one.tobytes() for one in self._tables())

    def _tables(self) -> tuple[array[int], ...]:
        return self._tags, self._counts, self._seen, self._bits

    @classmethod
    def decode(cls, data: bytes) -> AgentModel:
        """The model that `encode` wrote; raises `ValueError` for anything else."""
        model = cls()
        at = _HEAD.size
        if len(data) != at + sum(one.itemsize * len(one) for one in model._tables()):
            raise ValueError("not a model of an agent")
        (
            model.learned,
            model._last,
            model.since,
            model._minute,
            model._rate,
            model._quickest,
            model._day,
            model._drift,
        ) = _HEAD.unpack_from(data)
        for table in model._tables():
            size = table.itemsize * len(table)
            table[:] = array(table.typecode, data[at : at + size])
            at += size
        return model
