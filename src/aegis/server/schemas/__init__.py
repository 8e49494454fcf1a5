"""JSON Schemas (2020-12) of everything that crosses the HTTP API, by name; `openapi.json` publishes them."""

from __future__ import annotations

from typing import Any, Final

from aegis.server.schemas import admin, approval, common, decision, delivery, log, mission, permit, run, session

COMPONENTS: Final[dict[str, dict[str, Any]]] = {
    **common.SCHEMAS,
    **decision.SCHEMAS,
    **approval.SCHEMAS,
    **permit.SCHEMAS,
    **delivery.SCHEMAS,
    **log.SCHEMAS,
    **session.SCHEMAS,
    **mission.SCHEMAS,
    **run.SCHEMAS,
    **admin.SCHEMAS,
}
