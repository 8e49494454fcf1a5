"""Missions beside agents: what each is for, what it has left, and the way to suspend, resume or end it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from aegis.cockpit.page import Visit, ask
from aegis.errors import InvalidCall
from aegis.missions.lineage import _rows

_MOVES: Final = {"suspend": "suspendMission", "resume": "resumeMission", "revoke": "revokeMission"}


async def rows(visit: Visit) -> list[dict[str, Any]]:
    """The missions, each with its budgets as bars."""
    return await asyncio.to_thread(_rows, visit.services)


async def move(visit: Visit) -> Response:
    """Suspend a mission, let it go on, or end it and everything below it."""
    operation = _MOVES.get(visit.form.get("to", ""))
    if operation is None:
        raise InvalidCall("a mission is suspended, resumed or revoked, and nothing else")
    body = {"reason": visit.form.get("reason", "").strip()}
    await ask(visit, operation, path={"id": visit.names["id"]}, body=body)
    return RedirectResponse("/agents#missions", 303)
