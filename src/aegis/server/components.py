"""JSON Schemas (2020-12) of everything that crosses the HTTP API, by name; `openapi.json` publishes them."""

from __future__ import annotations

from typing import Any, Final

from aegis.approvals import routes as approvals_routes
from aegis.behaviour import alert_routes, canary_routes
from aegis.behaviour import routes as behaviour_routes
from aegis.context import routes as context_routes
from aegis.missions import routes as missions_routes
from aegis.reasoning import routes as reasoning_routes
from aegis.runs import routes as runs_routes
from aegis.server import administration, audit, deliveries
from aegis.server.schemas import CALL_SCHEMAS, COMMON_SCHEMAS, PERMIT_SCHEMAS

COMPONENTS: Final[dict[str, dict[str, Any]]] = {
    **COMMON_SCHEMAS,
    **CALL_SCHEMAS,
    **approvals_routes.SCHEMAS,
    **PERMIT_SCHEMAS,
    **deliveries.SCHEMAS,
    **audit.SCHEMAS,
    **context_routes.SCHEMAS,
    **reasoning_routes.SCHEMAS,
    **missions_routes.SCHEMAS,
    **runs_routes.SCHEMAS,
    **administration.SCHEMAS,
    **behaviour_routes.SCHEMAS,
    **canary_routes.SCHEMAS,
    **alert_routes.SCHEMAS,
}
