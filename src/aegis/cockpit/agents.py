"""Agents: who they are, what became of their calls, their keys and missions, and the switch that stops one."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import RedirectResponse, Response

from aegis.behaviour.baseline import usual_of
from aegis.cockpit.page import Visit, ask, html, may_ask
from aegis.cockpit.rollup import Seen
from aegis.core.times import rfc3339
from aegis.errors import InvalidCall
from aegis.keys.api import list_keys
from aegis.missions.lineage import graph_of
from aegis.missions.pages import rows as mission_rows

LISTED = 500  # agents on one page; the list goes on by name


async def agents(visit: Visit) -> Response:
    """Every agent with what became of its calls."""
    rollup = visit.cockpit.rollup
    await rollup.watched()
    query = {"limit": str(LISTED)}
    if visit.query.get("cursor"):
        query["cursor"] = visit.query["cursor"]
    found = await ask(visit, "listAgents", query=query)
    seen = rollup.tally.agents
    rows = [_row(agent, seen.get(agent["agent"])) for agent in found["items"]]
    rows.sort(key=lambda row: (row["agent"]["state"] != "revoked", -row["last"]))
    missions, graph = None, None
    if may_ask(visit, "listMissions"):
        missions = await mission_rows(visit)
        graph = graph_of(missions, [[*one["above"], one["id"]] for one in missions if one["declared"] is not None])
    return html(
        visit, "agents.html", rows=rows, next=found["next"], missions=missions, graph=graph, counted=rollup.complete
    )


async def agent(visit: Visit) -> Response:
    """One agent."""
    await visit.cockpit.rollup.watched()
    name = visit.names["id"]
    found = await ask(visit, "getAgent", path={"id": name})
    keys = await asyncio.to_thread(_keys, visit, name)
    usual = await asyncio.to_thread(usual_of, visit.services, name)
    groups = [group for group in visit.cockpit.rollup.tally.groups.values() if group.agent == name]
    return html(
        visit,
        "agent.html",
        row=_row(found, visit.cockpit.rollup.tally.agents.get(name)),
        keys=keys,
        usual=usual,
        counted=visit.cockpit.rollup.complete,
        groups=[
            {"rule": one.rule, "tool": one.tool, "count": one.count, "last": rfc3339(one.last_time)}
            for one in sorted(groups, key=lambda one: -one.last_index)[:12]
        ],
    )


async def switch(visit: Visit) -> Response:
    """Stop an agent before its next call, or let it go on."""
    name, to = visit.names["id"], visit.form.get("to", "")
    operation = {"revoke": "revokeAgent", "restore": "restoreAgent"}.get(to)
    if operation is None:
        raise InvalidCall("an agent is stopped or restored, and nothing else")
    body = {"reason": visit.form.get("reason", "").strip()}
    await ask(visit, operation, path={"id": name}, body=body)
    return RedirectResponse(visit.path.rpartition("/")[0], 303)


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


def _keys(visit: Visit, name: str) -> list[dict[str, Any]]:
    with visit.services.store.reader() as reader:
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
