"""The page of what is contained: why, until when, its end, and the switch that stops every agent."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import RedirectResponse, Response

from aegis.behaviour.routes import KILL, KILL_RELEASE, RELEASE_CONTAINED, contained_rows, end, one_contained, stop_all
from aegis.cockpit.page import PageRequest, html, page
from aegis.errors import InvalidCall
from aegis.server.validation import checked_body

EVERYTHING: Final = "everything"


async def contained(request: PageRequest) -> Response:
    """Show what is contained now, and the conditions in force."""
    rows = await asyncio.to_thread(contained_rows, request.services)
    rules = request.services.policy.current.behaviour.containment
    return html(
        request,
        "containment.html",
        rows=[row for row in rows if row["of"] != EVERYTHING],
        killed=next((row for row in rows if row["of"] == EVERYTHING), None),
        rules=[
            {"words": rule.words, "of": rule.of, "do": rule.does, "lasts": rule.lasts // 1_000_000} for rule in rules
        ],
        administers=request.may("admin"),
    )


async def downstream(request: PageRequest) -> Response:
    """Show one containment, and the sessions that it reached, each with its way."""
    one = await asyncio.to_thread(one_contained, request.services, request.path["id"])
    return html(request, "downstream.html", one=one, does=request.services.policy.current.behaviour.cascade.does)


async def release(request: PageRequest) -> Response:
    """End one containment."""
    body = checked_body(RELEASE_CONTAINED, {"reason": request.form.get("reason", "").strip()})
    await end(request.services, request.path["id"], body["reason"], by=request.principal.id)
    return RedirectResponse("/containment", 303)


async def switch(request: PageRequest) -> Response:
    """Stop every agent at once, or let them act again."""
    to = request.form.get("to", "")
    endpoint = {"kill": KILL, "release": KILL_RELEASE}.get(to)
    if endpoint is None:
        raise InvalidCall("everything is stopped or released, and nothing else")
    reason = checked_body(endpoint, {"reason": request.form.get("reason", "").strip()})["reason"]
    if to == "kill":
        await stop_all(request.services, reason, by=request.principal.id)
    else:
        await end(request.services, EVERYTHING, reason, by=request.principal.id)
    return RedirectResponse("/containment", 303)


PAGES: Final = (
    page("GET", "/containment", contained, "auditor", "admin"),
    page("GET", "/containment/{id}", downstream, "auditor", "admin"),
    page("POST", "/containment/{id}/release", release, "admin"),
    page("POST", "/kill", switch, "admin"),
)
