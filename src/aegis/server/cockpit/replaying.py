"""Replay over every recorded call of a period: in steps, with its progress, and bounded in what it keeps.

What is said of a replay says which calls it is about: where it reached back to, and whether that is the whole period.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from aegis.core.ports import Search
from aegis.core.times import MICROS
from aegis.errors import InvalidCall
from aegis.pipeline.compile import Policy
from aegis.server.cockpit import editing
from aegis.server.cockpit.jobs import Job
from aegis.server.cockpit.page import Visit
from aegis.server.cockpit.render import html
from aegis.server.config_text import text_in_force
from aegis.server.configuration import text_of
from aegis.server.replay import replayed
from aegis.server.replay_summary import summary_of
from aegis.server.services import Services

STEP: Final = 250  # calls decided again at once: bounds how long one step takes from the interpreter
MOST: Final = 100_000  # calls of one replay
KEPT: Final = 200  # changes of one direction that are listed; all of them are counted
GROUPS: Final = 2_000  # counts by tool, agent, was and would be: tools and agents are names that callers choose
AT_ONCE: Final = 5  # answers of the API that the editor waits for: what it shows at once is that cheap
MAX_DAYS: Final = 365


@dataclass(kw_only=True)
class Found:
    """What a replay has found so far. `changes` and `counts` are by direction: stricter, looser, other.

    `since` and `until` are the times of the earliest and the newest call that was looked at, and `complete` says that
    no earlier call of the period is left. `summary` counts changes by tool, agent, what was and what would be.
    """

    text: str = ""
    days: int = 0
    replayed: int = 0
    skipped: int = 0
    bounded: bool = False
    complete: bool = False
    since: str | None = None
    until: str | None = None
    summary: list[dict[str, Any]] = field(default_factory=list)
    changes: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"stricter": [], "looser": [], "other": []}
    )
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, step: dict[str, Any]) -> None:
        """Add what one step found; steps go back in time."""
        self.replayed += step["replayed"]
        self.skipped += step["skipped"]
        self.until = self.until or step["span"]["until"]
        self.since = step["span"]["since"] or self.since
        self.summary = summary_of([*self.summary, *step["summary"]])[:GROUPS]
        for direction, changes in by_direction(step["changed"]).items():
            self.counts[direction] += len(changes)
            self.changes[direction] += changes[: KEPT - len(self.changes[direction])]

    @property
    def done(self) -> int:
        """How many calls were looked at."""
        return self.replayed + self.skipped


class Replays:
    """The replay of one gateway: one at a time."""

    def __init__(self) -> None:
        self.job = Job()
        self.found = Found()

    def start(self, services: Services, candidate: Policy, *, text: str, days: int, by: str) -> None:
        """Begin over the calls of the last `days`; raises `InvalidCall` (409) while one is under way."""
        found = Found(text=text, days=days)
        since = services.clock() - int(timedelta(days=days).total_seconds()) * MICROS
        before: list[int | None] = [None]

        async def step() -> bool:
            search = Search(kind="decision", since=since, before=before[0], limit=STEP)
            part = await asyncio.to_thread(replayed, services, candidate, search)
            found.take(part)
            before[0] = part["last"]
            found.complete = part["replayed"] + part["skipped"] < STEP
            found.bounded = found.done >= MOST and not found.complete
            return not found.complete and not found.bounded

        self.job.start(by, step)
        self.found = found


def by_direction(changed: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Changes by what they do: newly refused or held, newly let through, or for another reason."""
    order = {"allow": 0, "sanitize": 1, "require_approval": 2, "block": 3}
    found: dict[str, list[dict[str, Any]]] = {"stricter": [], "looser": [], "other": []}
    for change in changed:
        was, now = order[change["before"]["decision"]], order[change["after"]["decision"]]
        found["stricter" if now > was else "looser" if now < was else "other"].append(change)
    return found


async def replay_page(visit: Visit) -> Response:
    """Where the replay stands, and what it has found so far."""
    replays = visit.cockpit.replays
    found, total = replays.found, visit.cockpit.rollup.tally.kinds["decision"]
    before = await asyncio.to_thread(text_in_force, visit.services.policy)
    return html(
        visit,
        "replay.html",
        standing=replays.job.standing,
        found=found,
        share=min(100, found.done * 100 // max(1, min(total, MOST))),
        difference=editing.difference(before, found.text) if found.text else [],
    )


async def start(visit: Visit) -> Response:
    """Replay the text of the form over all calls of its days."""
    text, days = editing.text_of_form(visit.form), visit.form.get("days", "")
    if not (days.isascii() and days.isdigit() and 1 <= int(days[:4]) <= MAX_DAYS):
        raise InvalidCall(f"the days must be from 1 to {MAX_DAYS}")
    candidate = (await asyncio.to_thread(visit.services.policy.check, text_of(text.encode()))).policy
    visit.cockpit.replays.start(visit.services, candidate, text=text, days=int(days[:4]), by=visit.principal.id)
    return RedirectResponse("/policies/replay", 303)


async def cancel(visit: Visit) -> Response:
    """End the replay; what it found stays."""
    visit.cockpit.replays.job.cancel()
    return RedirectResponse("/policies/replay", 303)
