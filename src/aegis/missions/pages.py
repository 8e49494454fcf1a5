"""Missions beside agents: what each is for, what it has left, and the way to suspend, resume or end it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from aegis.cockpit.page import PageRequest, page
from aegis.errors import InvalidCall
from aegis.missions.lineage import _rows
from aegis.missions.routes import RESUME_MISSION, REVOKE_MISSION, SUSPEND_MISSION, Move, move_mission
from aegis.server.endpoint import ApiEndpoint
from aegis.server.validation import checked_body

_MOVES: Final[dict[str, tuple[ApiEndpoint, Move]]] = {
    "suspend": (SUSPEND_MISSION, "suspend"),
    "resume": (RESUME_MISSION, "resume"),
    "revoke": (REVOKE_MISSION, "revoke"),
}


async def rows(request: PageRequest) -> list[dict[str, Any]]:
    """Return the missions, each with its budgets as bars."""
    return await asyncio.to_thread(_rows, request.services)


async def change_state(request: PageRequest) -> Response:
    """Suspend a mission, let it go on, or end it and everything below it."""
    found = _MOVES.get(request.form.get("to", ""))
    if found is None:
        raise InvalidCall("a mission is suspended, resumed or revoked, and nothing else")
    endpoint, move = found
    body = checked_body(endpoint, {"reason": request.form.get("reason", "").strip()})
    await move_mission(request.services, request.principal, request.path["id"], move, body["reason"])
    return RedirectResponse("/agents#missions", 303)


PAGES: Final = (page("POST", "/missions/{id:path}", change_state, "issuer", "admin"),)
