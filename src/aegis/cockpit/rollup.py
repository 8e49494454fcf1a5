"""Counts over the log, kept as it grows: by time, reason, agent, tool and rule.

Only work for pages: it follows the log while somebody looks, in small steps beside the event loop, and keeps
what it counted in one document, so that a long log is counted once. Decisions never wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import orjson

from aegis.approvals.values import COLLECTION as APPROVALS
from aegis.approvals.values import from_document
from aegis.core.outcome import Outcome, outcome_of
from aegis.core.ports import Document, Entry, Search, never_came
from aegis.errors import StoreConflict, StoreError
from aegis.server.services import Services

# What the pages count: pure, bounded, and the same for the same log.

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
MINUTES: Final = 120
HOURS: Final = 24 * 15
VERSION: Final = 3  # of what is kept: counts of another version are made again from the log
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
        if entry.kind not in ("decision", "result") or never_came(entry):
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
        """Return decisions by outcome, and refusals by reason, in the hours that end after `start` (microseconds)."""
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
    """Tell whether the configuration asks a person about all such calls: that breaks no rule."""
    return outcome is Outcome.REQUIRE_APPROVAL and orjson.loads(entry.body).get("verdict") == "compliant"


def _rules(entry: Entry) -> Iterator[str]:
    """Return the rules that made a receipt restrictive; a guard that named none stands for itself."""
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


COLLECTION: Final = "cockpit"
KEY: Final = "tally"
WATCHED_S: Final = 600.0  # how long after the last visit the log is still followed
TICK_S: Final = 0.5
STEP: Final = 1_000  # leaves counted at once: bounds how long one step takes from the interpreter
PAUSE_S: Final = 0.02
SAVE_EVERY: Final = 20_000  # leaves between two copies of the counts: what is lost is counted again
MAX_PENDING: Final = 1_000  # held calls that are counted; more are shown as this many

_NOTHING: Final = Search(kind="alarm", before=0, limit=1)

_log = logging.getLogger("aegis.server.cockpit")


class Rollup:
    """The counts of one gateway's log."""

    def __init__(self, services: Services):
        self._services = services
        self._watched = -WATCHED_S
        self._saved = 0
        self._version = 0
        self._loaded = False
        self.tally = Tally()
        self.size = 0
        self.pending = 0

    @property
    def complete(self) -> bool:
        """Whether everything that was in the log at the last look is counted."""
        return self._loaded and self.tally.next >= self.size

    async def watched(self) -> None:
        """Somebody looks: follow the log for a while. The first visit waits for a log that is soon counted."""
        first = monotonic() - self._watched >= WATCHED_S
        self._watched = monotonic()
        if first:
            await asyncio.to_thread(self._count)

    async def follow(self) -> None:
        """Count while somebody looks; runs until it is cancelled."""
        try:
            while True:
                more = False
                if monotonic() - self._watched < WATCHED_S:
                    try:
                        more = await asyncio.to_thread(self._step)
                    except StoreError:
                        _log.warning("the log cannot be counted now, the store does not answer")
                await asyncio.sleep(PAUSE_S if more else TICK_S)
        finally:
            self._save(force=True)

    def _step(self) -> bool:
        """Count the next leaves, and take the store's index a step further; whether there are more."""
        self._count()
        with self._services.store.reader() as reader:
            reader.search(_NOTHING)
        self._save(force=False)
        return self.tally.next < self.size

    def _count(self) -> None:
        """Count the next leaves."""
        if not self._loaded:
            self._load()
        with self._services.store.reader() as reader:
            self.size = reader.head().size
            stop = min(self.size, self.tally.next + STEP)
            for entry in reader.entries(self.tally.next, stop):
                self.tally.add(entry)
            waiting = reader.documents(APPROVALS, state="pending", limit=MAX_PENDING)
        now = self._services.clock()
        self.pending = sum(now < from_document(document).expires_at for document in waiting)

    def _load(self) -> None:
        with self._services.store.reader() as reader:
            document = reader.document(COLLECTION, KEY)
            size = reader.head().size
        if document is not None:
            self._version = document.version
            kept = Tally.decode(orjson.loads(document.body))
            if kept.next <= size:
                self.tally = kept
        self._saved, self._loaded = self.tally.next, True

    def _save(self, *, force: bool) -> None:
        new = self.tally.next - self._saved
        if new == 0 or (new < SAVE_EVERY and not force):
            return
        self._saved = self.tally.next
        body = orjson.dumps(self.tally.encode(), option=orjson.OPT_NON_STR_KEYS)
        try:
            with self._services.store.transaction() as transaction:
                found = transaction.document(COLLECTION, KEY)
                version = 1 if found is None else found.version + 1
                transaction.put_document(Document(collection=COLLECTION, key=KEY, version=version, body=body))
        except (StoreConflict, StoreError):  # these are counts: they can be made again from the log
            _log.debug("the counts were not kept")
