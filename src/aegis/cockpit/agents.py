"""Agents: who they are, what became of their calls, their keys and missions, and the switch that stops one."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from aegis.behaviour.baseline import usual_of
from aegis.behaviour.routes import behaviour_of, contained_rows
from aegis.cockpit.page import PageRequest, filters, html, page
from aegis.cockpit.rollup import Seen
from aegis.core.times import rfc3339
from aegis.errors import InvalidCall
from aegis.keys.api import list_keys
from aegis.missions.lineage import graph_of
from aegis.missions.pages import rows as mission_rows
from aegis.server.administration import (
    LIST_AGENTS,
    RESTORE_AGENT,
    REVOKE_AGENT,
    find_agent,
    find_agents,
    set_state,
)
from aegis.server.admission import SEE_MISSIONS
from aegis.server.validation import checked_body, query_of

LISTED = 500  # agents on one page; the list goes on by name


async def agents(request: PageRequest) -> Response:
    """Show every agent with what became of its calls."""
    rollup = request.cockpit.rollup
    await rollup.watched()
    query = {"limit": str(LISTED)}
    if request.query.get("cursor"):
        query["cursor"] = request.query["cursor"]
    found = await asyncio.to_thread(find_agents, request.services, query_of(LIST_AGENTS, query))
    seen = rollup.tally.agents
    rows = [_row(agent, seen.get(agent["agent"])) for agent in found["items"]]
    rows.sort(key=lambda row: (row["agent"]["state"] != "revoked", -row["last"]))
    missions, graph = None, None
    if request.may(*SEE_MISSIONS.roles):
        missions = await mission_rows(request)
        graph = graph_of(missions, [[*one["above"], one["id"]] for one in missions if one["declared"] is not None])
    return html(
        request, "agents.html", rows=rows, next=found["next"], missions=missions, graph=graph, counted=rollup.complete
    )


async def agent(request: PageRequest) -> Response:
    """Show one agent."""
    await request.cockpit.rollup.watched()
    name = request.path["id"]
    found = await asyncio.to_thread(find_agent, request.services, name)
    keys = await asyncio.to_thread(_keys, request, name)
    usual = await asyncio.to_thread(usual_of, request.services, name)
    groups = [group for group in request.cockpit.rollup.tally.groups.values() if group.agent == name]
    return html(
        request,
        "agent.html",
        row=_row(found, request.cockpit.rollup.tally.agents.get(name)),
        keys=keys,
        usual=usual,
        contained=[one for one in await asyncio.to_thread(contained_rows, request.services) if one["agent"] == name],
        behaviour=await asyncio.to_thread(behaviour_of, request.services, name),
        counted=request.cockpit.rollup.complete,
        groups=[
            {"rule": one.rule, "tool": one.tool, "count": one.count, "last": rfc3339(one.last_time)}
            for one in sorted(groups, key=lambda one: -one.last_index)[:12]
        ],
    )


async def switch(request: PageRequest) -> Response:
    """Stop an agent before its next call, or let it go on."""
    name, to = request.path["id"], request.form.get("to", "")
    endpoint = {"revoke": REVOKE_AGENT, "restore": RESTORE_AGENT}.get(to)
    if endpoint is None:
        raise InvalidCall("an agent is stopped or restored, and nothing else")
    body = checked_body(endpoint, {"reason": request.form.get("reason", "").strip()})
    state = "revoked" if to == "revoke" else "active"
    await set_state(request.services, name, state, body["reason"], by=request.principal.id)
    return RedirectResponse(request.url.rpartition("/")[0], 303)


def _row(agent: dict[str, Any], seen: Seen | None) -> dict[str, Any]:
    counts = [0, 0, 0, 0] if seen is None else seen.counts
    total = max(1, sum(counts))
    shares, at = [], 0.0
    for name, count in zip(("allow", "change", "hold", "block"), counts, strict=True):
        width = 100 * count / total
        shares.append({"outcome": name, "x": round(at, 2), "width": round(width, 2)})
        at += width
    return {
        "agent": agent,
        "counts": counts,
        "total": sum(counts),
        "shares": [share for share in shares if share["width"]],
        "last": 0 if seen is None else seen.last_time,
        "last_time": None if seen is None or not seen.last_time else rfc3339(seen.last_time),
    }


def _keys(request: PageRequest, name: str) -> list[dict[str, Any]]:
    with request.services.store.reader() as reader:
        keys = [key for key in list_keys(reader) if key.agent == name]
    return [
        {
            "id": key.id,
            "state": key.state,
            "roles": key.roles,
            "tools": key.tools,
            "created": rfc3339(key.created_at),
            "principal": key.principal,
        }
        for key in keys
    ]


PAGES: Final = (
    page("GET", "/agents", agents, "admin", query=filters("cursor")),
    page("POST", "/agents/{id:path}/switch", switch, "admin"),
    page("GET", "/agents/{id:path}", agent, "admin"),
)
