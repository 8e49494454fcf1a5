"""What of the agents' last day is not usual of them: looked at beside requests, one agent after the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from statistics import median
from time import monotonic
from typing import Final

from msgspec import Struct

from aegis.cockpit.rollup import Tally
from aegis.cockpit.work import Job
from aegis.core.ports import Entry, Search
from aegis.core.times import MICROS, rfc3339
from aegis.server.services import Services

# What an agent usually does, told from its newest calls, and what of its last day is not like that. Pure.

LOOKED_AT: Final = 1_000  # newest calls of an agent that a baseline is made of
SHOWN: Final = 8  # tools that are named
RECENT_US: Final = 24 * 3_600 * MICROS
_HOUR_US: Final = 3_600 * MICROS
_ENOUGH: Final = 20  # calls before the last day below which nothing is called usual
_BUSY: Final = 3  # so many times the busiest hour before is told


class Usual(Struct, frozen=True, kw_only=True):
    """One tool: how often it was called, and what share of all calls and of its own refusals that is."""

    tool: str
    calls: int
    share: float
    refused: float


class Baseline(Struct, frozen=True, kw_only=True):
    """What is usual. `hours` counts calls by the hour of the day (UTC); `a_busy_hour` and `an_hour` count calls
    in the hours in which there were any; `odd` says what the last day had that the time before it did not.
    """

    calls: int
    since: str
    tools: tuple[Usual, ...]
    more: int
    refused: float
    an_hour: float
    a_busy_hour: int
    hours: tuple[int, ...]
    odd: tuple[str, ...]


def baseline(entries: Sequence[Entry], now: int) -> Baseline | None:
    """The baseline of one agent from its decisions, newest first; `None` where there is none."""
    if not entries:
        return None
    tools, refused = Counter(one.tool for one in entries), Counter(one.tool for one in entries if _is_refused(one))
    by_hour = Counter(one.time // _HOUR_US for one in entries)
    day = Counter(one.time // _HOUR_US % 24 for one in entries)
    return Baseline(
        calls=len(entries),
        since=rfc3339(entries[-1].time),
        tools=tuple(
            Usual(
                tool=tool,
                calls=count,
                share=round(100 * count / len(entries), 1),
                refused=round(100 * refused[tool] / count, 1),
            )
            for tool, count in tools.most_common(SHOWN)
        ),
        more=max(0, len(tools) - SHOWN),
        refused=round(100 * refused.total() / len(entries), 1),
        an_hour=median(by_hour.values()),
        a_busy_hour=max(by_hour.values()),
        hours=tuple(day[hour] for hour in range(24)),
        odd=tuple(_odd(entries, now - RECENT_US)),
    )


def _odd(entries: Sequence[Entry], start: int) -> list[str]:
    """What the calls after `start` have that those before it do not."""
    recent, before = [one for one in entries if one.time >= start], [one for one in entries if one.time < start]
    if not recent or len(before) < _ENOUGH:
        return []
    told = []
    fresh = sorted({one.tool for one in recent} - {one.tool for one in before})
    if fresh:
        told.append(f"calls that it did not make before: {', '.join(fresh[:SHOWN])}")
    was, now = _share(before), _share(recent)
    if now > 2 * was + 5:
        told.append(f"{now:.0f} % of its calls were not simply allowed, {was:.0f} % before")
    busiest = max(Counter(one.time // _HOUR_US for one in before).values())
    busy = max(Counter(one.time // _HOUR_US for one in recent).values())
    if busy > _BUSY * busiest:
        told.append(f"{busy} calls within one hour, at most {busiest} before")
    return told


def _share(entries: Sequence[Entry]) -> float:
    return 100 * sum(map(_is_refused, entries)) / len(entries)


def _is_refused(entry: Entry) -> bool:
    return entry.decision != "allow"


FRESH_S: Final = 60.0  # how long what was found is shown before agents are looked at again
MOST: Final = 200  # agents of one look, those that called last first: names are what callers choose


class Odd(Struct, frozen=True, kw_only=True):
    """One agent, and what its last day had that the time before it did not."""

    agent: str
    told: tuple[str, ...]


class Unusual:
    """The last look at all agents; `more` says how many agents were left out."""

    def __init__(self) -> None:
        self.job = Job()
        self.found: tuple[Odd, ...] = ()
        self.more = 0
        self._looked = -FRESH_S

    def look(self, services: Services, tally: Tally) -> None:
        """Look at the agents that called within the last day, unless that was just done or is under way."""
        if self.job.running or monotonic() - self._looked < FRESH_S:
            return
        self._looked = monotonic()
        start = services.clock() - RECENT_US
        names = sorted(
            (name for name, seen in tally.agents.items() if seen.last_time >= start),
            key=lambda name: -tally.agents[name].last_time,
        )
        waiting, found = names[:MOST][::-1], list[Odd]()

        async def step() -> bool:
            if waiting:
                name = waiting.pop()
                usual = await asyncio.to_thread(usual_of, services, name)
                if usual is not None and usual.odd:
                    found.append(Odd(agent=name, told=usual.odd))
            if not waiting:
                self.found, self.more = tuple(found), max(0, len(names) - MOST)
            return bool(waiting)

        self.job.start("", step)


def usual_of(services: Services, agent: str) -> Baseline | None:
    """What is usual of an agent, from its newest calls; `None` where it made none."""
    with services.store.reader() as reader:
        newest = reader.search(Search(kind="decision", agent=agent, limit=LOOKED_AT))
    return baseline(newest, services.clock())
