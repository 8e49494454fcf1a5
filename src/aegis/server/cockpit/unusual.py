"""What of the agents' last day is not usual of them: looked at beside requests, one agent after the other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import Final

from aegis.core.ports import Search
from aegis.server.cockpit.baseline import LOOKED_AT, RECENT_US, Baseline, baseline
from aegis.server.cockpit.jobs import Job
from aegis.server.cockpit.tally import Tally
from aegis.server.services import Services

FRESH_S: Final = 60.0  # how long what was found is shown before agents are looked at again
MOST: Final = 200  # agents of one look, those that called last first: names are what callers choose


@dataclass(frozen=True, kw_only=True, slots=True)
class Odd:
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
