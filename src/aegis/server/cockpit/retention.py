"""Retention: the payloads of old calls are erased in steps, each on record; the receipts stay and still verify."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Final

from starlette.responses import RedirectResponse, Response

from aegis.approvals.model import COLLECTION as APPROVALS
from aegis.approvals.model import from_document
from aegis.core.ports import Entry, Reader
from aegis.core.times import MICROS
from aegis.errors import InvalidCall
from aegis.gate.erase import erase_payload
from aegis.server.cockpit.jobs import Job
from aegis.server.cockpit.page import Visit
from aegis.server.services import Services

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


async def start(visit: Visit) -> Response:
    """Erase what the form names, once its box is ticked."""
    form = visit.form
    days = form.get("days", "")
    if form.get("sure") != "yes":
        raise InvalidCall("nothing was erased: the box was not ticked", hint="go back, and tick it")
    if not (days.isascii() and days.isdigit() and 1 <= int(days[:6]) <= MAX_DAYS):
        raise InvalidCall(f"the days must be from 1 to {MAX_DAYS}")
    told = Erased(days=int(days[:6]), agent=form.get("agent", "").strip(), tool=form.get("tool", "").strip())
    visit.cockpit.retention.start(visit.services, told, visit.principal.id)
    return RedirectResponse("/audit#retention", 303)


async def cancel(visit: Visit) -> Response:
    """Erase no more; what is erased stays erased."""
    visit.cockpit.retention.job.cancel()
    return RedirectResponse("/audit#retention", 303)


def _old(services: Services, told: Erased, end: int) -> tuple[Sequence[Entry], bool]:
    """The next entries whose payloads are to go, and whether there may be more."""
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
    """The decisions behind calls that are held now, or were approved and may still be made."""
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
