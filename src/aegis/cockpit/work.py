"""Work on the whole log beside requests: replays of recorded calls, erasure of old payloads, drafts of policies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any, Final

from aegis.approvals.values import COLLECTION as APPROVALS
from aegis.approvals.values import from_document
from aegis.cockpit.jobs import Job
from aegis.config.compile import Policy
from aegis.config.text import summary_of
from aegis.core.ports import Entry, Reader, Search
from aegis.core.times import MICROS
from aegis.errors import InvalidCall
from aegis.gate.repeat import erase_payload
from aegis.gate.replay import replayed
from aegis.server.drafting import draft_policy
from aegis.server.services import Services

# Drafts of policies from plain words, asked for beside requests.


@dataclass(kw_only=True)
class Drafted:
    """What was asked for, and what became of it; `told` is empty until the model answered."""

    wish: str = ""
    told: dict[str, Any] | None = None


class Drafts:
    """The draft of one gateway: one at a time."""

    def __init__(self) -> None:
        self.job = Job()
        self.drafted = Drafted()

    def start(self, services: Services, wish: str, *, by: str) -> None:
        """Begin to draft what `wish` says; raises `InvalidCall` (409) while a draft is under way."""
        drafted = Drafted(wish=wish)

        async def step() -> bool:
            drafted.told = await draft_policy(services, wish, by=by)
            return False

        self.job.start(by, step)
        self.drafted = drafted


# A replay over every recorded call of a period: in steps, with its progress, and bounded in what it keeps.

REPLAY_STEP: Final = 250  # calls decided again at once: bounds how long one step takes from the interpreter
MOST: Final = 100_000  # calls of one replay
KEPT: Final = 200  # changes of one direction that are listed; all of them are counted
GROUPS: Final = 2_000  # counts by tool, agent, was and would be: tools and agents are names that callers choose
REPLAY_DAYS: Final = 365


@dataclass(kw_only=True)
class ReplayFound:
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
        self.found = ReplayFound()

    def start(self, services: Services, candidate: Policy, *, text: str, days: int, by: str) -> None:
        """Begin over the calls of the last `days`; raises `InvalidCall` (409) while one is under way."""
        found = ReplayFound(text=text, days=days)
        since = services.clock() - int(timedelta(days=days).total_seconds()) * MICROS
        before: list[int | None] = [None]

        async def step() -> bool:
            search = Search(kind="decision", since=since, before=before[0], limit=REPLAY_STEP)
            part = await asyncio.to_thread(replayed, services.gate.parts, services.evaluate, candidate, search)
            found.take(part)
            before[0] = part["last"]
            found.complete = part["replayed"] + part["skipped"] < REPLAY_STEP
            found.bounded = found.done >= MOST and not found.complete
            return not found.complete and not found.bounded

        self.job.start(by, step)
        self.found = found


def by_direction(changed: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return changes by what they do: newly refused or held, newly let through, or for another reason."""
    order = {"allow": 0, "sanitize": 1, "require_approval": 2, "block": 3}
    found: dict[str, list[dict[str, Any]]] = {"stricter": [], "looser": [], "other": []}
    for change in changed:
        was, now = order[change["before"]["decision"]], order[change["after"]["decision"]]
        found["stricter" if now > was else "looser" if now < was else "other"].append(change)
    return found


KINDS: Final = frozenset({"decision", "result", "judge"})  # a session's task is needed while the session goes on
STEP: Final = 500  # leaves looked at in one step
MAX_DAYS: Final = 36_500
REDEEMABLE_US: Final = 24 * 3_600 * MICROS  # longer than any approved call can still be made
_PAGE: Final = 1_000


@dataclass(kw_only=True)
class Erased:
    """What was asked for, how far it is, and what it came to. `held` were left: they wait for an answer."""

    days: int = 0
    agent: str = ""
    tool: str = ""
    at: int = 0
    size: int = 0
    erased: int = 0
    held: int = 0


class Retention:
    """The erasing of one gateway: one at a time."""

    def __init__(self) -> None:
        self.job = Job()
        self.told = Erased()

    def start(self, services: Services, told: Erased, by: str) -> None:
        """Begin with the payloads that are older than `told.days`; raises `InvalidCall` (409) while it goes on."""
        end = services.clock() - int(timedelta(days=told.days).total_seconds()) * MICROS

        async def step() -> bool:
            entries, more = await asyncio.to_thread(_old, services, told, end)
            for entry in entries:
                try:
                    await services.gate.arecord(erase_payload(entry.receipt_id, principal=by))
                except InvalidCall:  # somebody else erased it meanwhile
                    continue
                told.erased += 1
            return more

        self.job.start(by, step)
        self.told = told


def _old(services: Services, told: Erased, end: int) -> tuple[Sequence[Entry], bool]:
    """Return the next entries whose payloads are to go, and whether there may be more."""
    with services.store.reader() as reader:
        told.size = reader.head().size
        looked = list(islice(reader.entries(told.at, min(told.at + STEP, told.size)), STEP))
        waiting = _waiting(reader, services.clock())
        found: list[Entry] = []
        for entry in looked:
            if entry.time >= end:
                return found, False
            told.at = entry.index + 1
            if not _is_meant(entry, told) or reader.payload(entry.index) is None:
                continue
            if entry.receipt_id in waiting:
                told.held += 1
                continue
            found.append(entry)
    return found, bool(looked)


def _is_meant(entry: Entry, told: Erased) -> bool:
    return entry.kind in KINDS and told.agent in ("", entry.agent) and told.tool in ("", entry.tool)


def _waiting(reader: Reader, now: int) -> frozenset[str]:
    """Return the decisions behind calls that are held now, or were approved and may still be made."""
    found: set[str] = set()
    for state in ("pending", "approved"):
        after = ""
        while rows := reader.documents(APPROVALS, state=state, after=after, limit=_PAGE):
            for approval in map(from_document, rows):
                fresh = approval.resolved_at is None or now - approval.resolved_at < REDEEMABLE_US
                if approval.state_at(now) == state and fresh:
                    found |= {approval.decision_id, approval.narrowed_by or approval.decision_id}
            after = rows[-1].key
    return frozenset(found)
