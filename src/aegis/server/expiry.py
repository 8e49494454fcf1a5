"""Pending approvals end when their time is over, whether or not anybody asks again."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aegis.approvals.model import COLLECTION, Approval, from_document
from aegis.approvals.queue import transition
from aegis.errors import StoreConflict, StoreError
from aegis.gate.ids import new_id
from aegis.server.services import Services

PERIOD_S: Final = 1.0
PAGE: Final = 1_000  # pending approvals looked at in one round
_log = logging.getLogger("aegis.server.expiry")


async def expire(services: Services) -> None:
    """Record the end of every approval whose time is over; runs until it is cancelled."""
    while True:
        await asyncio.sleep(PERIOD_S)
        try:
            for approval in await asyncio.to_thread(_due, services):
                await _end(services, approval)
        except StoreError:  # they are refused all the same; the record follows when the store is back
            _log.warning("approvals could not be ended, the store does not answer")


async def _end(services: Services, approval: Approval) -> None:
    unit = transition(approval, "expired", receipt_id=new_id(), principal="gate", now=services.clock())
    try:
        await services.gate.arecord(unit)
    except StoreConflict:  # answered, or ended by another process, meanwhile
        _log.debug("an approval moved before it was ended", extra={"approval_id": approval.id})


def _due(services: Services) -> list[Approval]:
    with services.store.reader() as reader:
        documents = reader.documents(COLLECTION, state="pending", limit=PAGE)
    now = services.clock()
    return [one for one in map(from_document, documents) if now >= one.expires_at]
