"""Messages that leave the deployment, and those that nobody took."""

from __future__ import annotations

from typing import Final

from aegis.server.deliveries import list_deliveries, retry_delivery
from aegis.server.endpoint import Endpoint, Param
from aegis.server.permissions import ADMINISTER
from aegis.server.schemas.delivery import STATES
from aegis.server.table.parts import CURSOR, LIMIT, failing, named, ok

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
