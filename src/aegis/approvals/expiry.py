"""Time passes for pending approvals whether or not anybody asks: turns pass on, and in the end they expire.

Whatever of a stopped agent still waits is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from aegis.approvals.announcing import announced
from aegis.approvals.queue import passed_on, transition
from aegis.approvals.values import COLLECTION, Approval, from_document
from aegis.errors import StoreConflict, StoreError
from aegis.gate.events import Event, new_id, notify
from aegis.log.writer import Unit
from aegis.server.services import Services

PERIOD_S: Final = 1.0
PAGE: Final = 500  # approvals read at once
_log = logging.getLogger("aegis.server.expiry")


async def expire(services: Services) -> None:
    """Record what time did to pending approvals; runs until it is cancelled."""
    while True:
        await asyncio.sleep(PERIOD_S)
        try:
            for approval, action, unit in await asyncio.to_thread(_due, services):
                await _record(services, approval, action, unit)
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
