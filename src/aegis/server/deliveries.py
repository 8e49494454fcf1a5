"""Messages that wait or that nobody took, for administrators; what they say is not shown."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

from starlette.responses import Response

from aegis.core.times import rfc3339
from aegis.delivery import outbox
from aegis.delivery.message import Message
from aegis.delivery.send import describe
from aegis.server.answers import answer
from aegis.server.endpoint import Asked
from aegis.server.paging import DEFAULT_LIMIT, page, place_of
from aegis.server.services import Services


async def list_deliveries(asked: Asked) -> Response:
    """Messages in one state, oldest first: `dead` unless `state` says otherwise."""
    return answer(await asyncio.to_thread(_list, asked))


async def retry_delivery(asked: Asked) -> Response:
    """Send a dead message again."""
    message = await asyncio.to_thread(_retry, asked.services, asked.path["id"])
    asked.services.deliveries.start()
    return answer(_view(message))


def _list(asked: Asked) -> dict[str, Any]:
    limit, state = asked.query.get("limit", DEFAULT_LIMIT), asked.query.get("state", "dead")
    after = place_of(asked.query.get("cursor")) or ""
    with asked.services.store.reader() as reader:
        found = list(islice(outbox.waiting(reader, state, after), limit))
    return page([_view(message) for message in found], found[-1].id if len(found) == limit else None)


def _retry(services: Services, message_id: str) -> Message:
    with services.store.transaction() as transaction:
        return outbox.retry(transaction, message_id, services.clock())


def _view(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "state": message.state,
        "event": message.event,
        "target": describe(message.target),
        "created_at": rfc3339(message.created_at),
        "due_at": rfc3339(message.due_at),
        "attempts": message.attempts,
        "error": message.error,
    }
