"""What the pages count: pure, bounded, and the same for the same log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from aegis.core.outcome import Outcome, outcome_of
from aegis.core.ports import Entry

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
MINUTES: Final = 120
HOURS: Final = 24 * 15
VERSION: Final = 2  # of what is kept: counts of another version are made again from the log
MAX_GROUPS: Final = 2_000  # agents and tools are names that callers choose: bounds what they make us hold
WORDS: Final = tuple(outcome.word for outcome in Outcome)

Key = tuple[str, str, str]


@dataclass(slots=True)
class Group:
    """Violations of one rule by one agent with one tool; `counts` are by outcome, in the order of `WORDS`."""

    rule: str
    agent: str
    tool: str
    counts: list[int]
    first_index: int
    first_time: int
    last_index: int
    last_time: int

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)


@dataclass(slots=True)
class Seen:
    """One agent or tool: decisions by outcome, and when it was last seen."""

    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    last_time: int = 0

    @property
    def total(self) -> int:
        """How many calls there were."""
        return sum(self.counts)


class Tally:
    """Counts of every leaf below `next`."""

    def __init__(self) -> None:
        self.next = 0
        self.totals = [0, 0, 0, 0]
        self.minutes: dict[int, list[int]] = {}
        self.hours: dict[int, list[int]] = {}
        self.reasons: dict[int, Counter[str]] = {}
        self.groups: dict[Key, Group] = {}
        self.agents: dict[str, Seen] = {}
        self.tools: dict[str, Seen] = {}
        self.kinds: Counter[str] = Counter()

    def add(self, entry: Entry) -> None:
        """Count one leaf."""
        self.next = entry.index + 1
        self.kinds[entry.kind] += 1
        if entry.kind not in ("decision", "result"):
            return
        outcome = outcome_of(entry.decision)
        if entry.kind == "decision":
            self.totals[outcome] += 1
            _bucket(self.minutes, entry.time // MINUTE_US, MINUTES)[outcome] += 1
            hour = entry.time // HOUR_US
            _bucket(self.hours, hour, HOURS)[outcome] += 1
            if outcome is not Outcome.ALLOW:
                reasons = self.reasons.setdefault(hour, Counter())
                reasons[entry.reason] += 1
                _trim(self.reasons, HOURS)
            _count(self.agents, entry.agent, outcome, entry.time)
            _count(self.tools, entry.tool, outcome, entry.time)
        if outcome is not Outcome.ALLOW and not _is_asked_for(entry, outcome):
            self._violations(entry, outcome)

    def since(self, start: int) -> tuple[list[int], Counter[str]]:
        """Decisions by outcome, and refusals by reason, in the hours that end after `start` (microseconds)."""
        counts, reasons = [0, 0, 0, 0], Counter[str]()
        for hour, row in self.hours.items():
            if (hour + 1) * HOUR_US > start:
                counts = [a + b for a, b in zip(counts, row, strict=True)]
                reasons += self.reasons.get(hour, Counter())
        return counts, reasons

    def encode(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "v": VERSION,
            "next": self.next,
            "totals": self.totals,
            "minutes": self.minutes,
            "hours": self.hours,
            "reasons": self.reasons,
            "kinds": self.kinds,
            "groups": [
                [g.rule, g.agent, g.tool, g.counts, g.first_index, g.first_time, g.last_index, g.last_time]
                for g in self.groups.values()
            ],
            "agents": {name: [*seen.counts, seen.last_time] for name, seen in self.agents.items()},
            "tools": {name: [*seen.counts, seen.last_time] for name, seen in self.tools.items()},
        }

    @classmethod
    def decode(cls, value: dict[str, Any]) -> Tally:
        """From JSON; one of another version begins anew."""
        tally = cls()
        if value.get("v") != VERSION:
            return tally
        tally.next, tally.totals = value["next"], value["totals"]
        tally.minutes = {int(at): row for at, row in value["minutes"].items()}
        tally.hours = {int(at): row for at, row in value["hours"].items()}
        tally.reasons = {int(at): Counter(row) for at, row in value["reasons"].items()}
        tally.kinds = Counter(value["kinds"])
        tally.groups = {(row[0], row[1], row[2]): Group(*row) for row in value["groups"]}
        tally.agents = {name: Seen(row[:4], row[4]) for name, row in value["agents"].items()}
        tally.tools = {name: Seen(row[:4], row[4]) for name, row in value["tools"].items()}
        return tally

    def _violations(self, entry: Entry, outcome: Outcome) -> None:
        for rule in _rules(entry):
            key = (rule, entry.agent, entry.tool)
            group = self.groups.pop(key, None)
            if group is None:
                if len(self.groups) >= MAX_GROUPS:
                    del self.groups[next(iter(self.groups))]  # the one that was not seen for longest
                group = Group(rule, entry.agent, entry.tool, [0, 0, 0, 0], entry.index, entry.time, 0, 0)
            group.counts[outcome] += 1
            group.last_index, group.last_time = entry.index, entry.time
            self.groups[key] = group


def _is_asked_for(entry: Entry, outcome: Outcome) -> bool:
    """Whether a person is asked because the configuration says so, of such calls as of all: that breaks no rule."""
    return outcome is Outcome.REQUIRE_APPROVAL and orjson.loads(entry.body).get("verdict") == "compliant"


def _rules(entry: Entry) -> Iterator[str]:
    """The rules that made a receipt restrictive; a guard that named none stands for itself."""
    found = False
    for guard in orjson.loads(entry.body).get("guards", ()):
        if guard["outcome"] != "allow":
            for rule in guard["rules"]:
                found = True
                yield rule
            if not guard["rules"]:
                found = True
                yield f"{guard['guard']}: {entry.reason}"
    if not found:
        yield entry.reason


def _bucket(buckets: dict[int, list[int]], at: int, most: int) -> list[int]:
    row = buckets.get(at)
    if row is None:
        row = buckets[at] = [0, 0, 0, 0]
        _trim(buckets, most)
    return row


def _trim(buckets: dict[int, Any], most: int) -> None:
    while len(buckets) > most:
        del buckets[min(buckets)]


def _count(seen: dict[str, Seen], name: str, outcome: Outcome, time: int) -> None:
    row = seen.pop(name, None)
    if row is None:
        row = Seen()
        if len(seen) >= MAX_GROUPS:
            del seen[next(iter(seen))]
    row.counts[outcome] += 1
    row.last_time = time
    seen[name] = row
