"""Messages that wait or that nobody took, for administrators; what they say is not shown."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any, Final

from starlette.responses import Response

from aegis.core.times import rfc3339
from aegis.outbound import worker
from aegis.outbound.send import Message, describe
from aegis.server.admission import ADMINISTER
from aegis.server.endpoint import ApiRequest, Endpoint, Param
from aegis.server.http import DEFAULT_LIMIT, answer, page, place_of
from aegis.server.schemas import CURSOR, ID, LIMIT, TEXT, TIME, Schema, closed, failing, listing, named, ok
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


_STATE: Final = Param(
    name="state", schema={"type": "string", "enum": list(STATES), "default": "dead"}, text="in this state"
)


async def list_deliveries(request: ApiRequest) -> Response:
    """Show messages in one state, oldest first: `dead` unless `state` says otherwise."""
    return answer(await asyncio.to_thread(_list, request))


LIST_DELIVERIES: Final = Endpoint(
    method="GET",
    path="/v1/deliveries",
    operation="listDeliveries",
    tag="deliveries",
    summary="Messages of notifiers that wait, or that nobody took",
    permission=ADMINISTER,
    handler=list_deliveries,
    query=(_STATE, LIMIT, CURSOR),
    replies=ok("one page, oldest first", "Deliveries"),
)


async def retry_delivery(request: ApiRequest) -> Response:
    """Send a dead message again."""
    return answer(await send_again(request.services, request.path["id"]))


RETRY_DELIVERY: Final = Endpoint(
    method="POST",
    path="/v1/deliveries/{id}/retry",
    operation="retryDelivery",
    tag="deliveries",
    summary="Send a dead message again",
    permission=ADMINISTER,
    handler=retry_delivery,
    path_params=named("id of the message"),
    replies={**ok("it is due", "Delivery"), **failing(s404="there is none", s409="it is not dead")},
)


def _list(request: ApiRequest) -> dict[str, Any]:
    limit, state = request.query.get("limit", DEFAULT_LIMIT), request.query.get("state", "dead")
    after = place_of(request.query.get("cursor")) or ""
    with request.services.store.reader() as reader:
        found = list(islice(worker.waiting(reader, state, after), limit))
    return page([_view(message) for message in found], found[-1].id if len(found) == limit else None)


async def send_again(services: Services, message_id: str) -> dict[str, Any]:
    """Make a dead message due, and begin to send it; raises `InvalidCall` (404, 409)."""
    message = await asyncio.to_thread(_retry, services, message_id)
    services.deliveries.start()
    return _view(message)


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


ENDPOINTS: Final = (
    LIST_DELIVERIES,
    RETRY_DELIVERY,
)
