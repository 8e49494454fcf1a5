"""Messages that wait or that nobody took, for administrators; what they say is not shown."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any, Final

from starlette.responses import Response

from aegis.core.times import rfc3339
from aegis.outbound import worker
from aegis.outbound.send import Message, describe
from aegis.server.endpoint import Asked, Endpoint, Param
from aegis.server.http import DEFAULT_LIMIT, answer, page, place_of
from aegis.server.permissions import ADMINISTER
from aegis.server.schemas.common import ID, TEXT, TIME, Schema, closed, listing
from aegis.server.schemas.parts import CURSOR, LIMIT, failing, named, ok
from aegis.server.services import Services

# Messages that leave the deployment.

STATES: Final = ("due", "dead")
SCHEMAS: Final[dict[str, Schema]] = {
    "Delivery": closed(
        {
            "id": ID,
            "state": {"type": "string", "enum": list(STATES)},
            "event": TEXT,
            "target": TEXT,
            "created_at": TIME,
            "due_at": TIME,
            "attempts": {"type": "integer", "minimum": 0},
            "error": TEXT,
        }
    ),
    "Deliveries": listing("Delivery"),
}


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
        found = list(islice(worker.waiting(reader, state, after), limit))
    return page([_view(message) for message in found], found[-1].id if len(found) == limit else None)


def _retry(services: Services, message_id: str) -> Message:
    with services.store.transaction() as transaction:
        return worker.retry(transaction, message_id, services.clock())


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


# Messages that leave the deployment, and those that nobody took.

_STATE: Final = Param(
    name="state", schema={"type": "string", "enum": list(STATES), "default": "dead"}, text="in this state"
)

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/v1/deliveries",
        operation="listDeliveries",
        tag="deliveries",
        summary="Messages of notifiers that wait, or that nobody took",
        permission=ADMINISTER,
        handler=list_deliveries,
        query=(_STATE, LIMIT, CURSOR),
        replies=ok("one page, oldest first", "Deliveries"),
    ),
    Endpoint(
        method="POST",
        path="/v1/deliveries/{id}/retry",
        operation="retryDelivery",
        tag="deliveries",
        summary="Send a dead message again",
        permission=ADMINISTER,
        handler=retry_delivery,
        path_params=named("id of the message"),
        replies={**ok("it is due", "Delivery"), **failing(s404="there is none", s409="it is not dead")},
    ),
)
