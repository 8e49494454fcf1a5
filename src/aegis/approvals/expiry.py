"""Time passes for pending approvals whether or not anybody asks: turns pass on, and in the end they expire.

Whatever of a stopped agent still waits is cancelled. Calls that wait for evidence are judged again now and then: what
another process recorded, a status that is back, or a result whose gateway ended before it looked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Final

from aegis.approvals.queue import passed_on, transition
from aegis.approvals.values import COLLECTION, Approval, from_document
from aegis.approvals.view import announced
from aegis.errors import StoreConflict, StoreError
from aegis.gate.events import Event, new_id, notify
from aegis.log.writer import Unit
from aegis.server.services import Services

PERIOD_S: Final = 1.0
SETTLE_S: Final = 5.0  # how often calls that wait for evidence are judged again though nothing was heard
MAX_SETTLED: Final = 64  # sessions in one round: bounds what many waiting calls can make us do
PAGE: Final = 500  # approvals read at once
_log = logging.getLogger("aegis.server.expiry")


async def expire(services: Services) -> None:
    """Record what time did to pending approvals; runs until it is cancelled."""
    settled: dict[tuple[str, str], float] = {}
    while True:
        await asyncio.sleep(PERIOD_S)
        try:
            for approval, action, unit in await asyncio.to_thread(_due, services):
                await _record(services, approval, action, unit)
            if services.policy.current.approval_rules.defers:
                await _settle(services, settled)
        except StoreError:  # they are refused all the same; the record follows when the store is back
            _log.warning("approvals could not be ended, the store does not answer")


async def _record(services: Services, approval: Approval, action: str, unit: Unit) -> None:
    try:
        recorded = await services.gate.arecord(announced(services.policy.current, approval, unit, services.clock()))
    except StoreConflict:  # answered, or ended by another process, meanwhile
        _log.debug("an approval moved before it was ended", extra={"approval_id": approval.id})
        return
    members = {"approval_id": approval.id, "tool": approval.tool, "action": action}
    notify(services.gate.parts.listeners, Event(kind="approval", members=members, recorded=recorded[0]))


async def _settle(services: Services, settled: dict[tuple[str, str], float]) -> None:
    """Judge the waiting calls of sessions again, those first that were not for longest."""
    now = time.monotonic()
    waiting = {(one.principal, one.session) for one in await asyncio.to_thread(_deferred, services)}
    for gone in settled.keys() - waiting:
        del settled[gone]
    due = sorted(one for one in waiting if now - settled.get(one, 0.0) >= SETTLE_S)
    for principal, session in sorted(due, key=lambda one: settled.get(one, 0.0))[:MAX_SETTLED]:
        settled[principal, session] = now
        await services.gate.asettle(principal, session)


def _deferred(services: Services) -> list[Approval]:
    return [approval for approval in _pending(services) if approval.waiting_for]


def _due(services: Services) -> list[tuple[Approval, str, Unit]]:
    now, control = services.clock(), services.gate.control.current()
    found: list[tuple[Approval, str, Unit]] = []
    for approval in _pending(services):
        if approval.state_at(now) == "expired":
            found.append((approval, "expired", transition(approval, "expired", receipt_id=new_id(), principal="gate")))
        elif control.stops(approval.agent):
            unit = transition(approval, "cancelled", receipt_id=new_id(), principal="gate")
            found.append((approval, "cancelled", unit))
        elif approval.turn_at(now) > approval.turn:
            found.append((approval, "passed_on", passed_on(approval, now=now, receipt_id=new_id())))
    return found


def _pending(services: Services) -> Iterator[Approval]:
    after = ""
    while True:
        with services.store.reader() as reader:
            documents = reader.documents(COLLECTION, state="pending", after=after, limit=PAGE)
        yield from map(from_document, documents)
        if len(documents) < PAGE:
            return
        after = documents[-1].key
