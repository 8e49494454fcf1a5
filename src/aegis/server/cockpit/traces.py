"""Sessions: each as a timeline of calls, results, approvals and everything else that the log holds of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import orjson
from starlette.responses import Response, StreamingResponse

from aegis.server.cockpit.ask import ask, may_ask
from aegis.server.cockpit.flows import Flow, flows
from aegis.server.cockpit.lineage import Graph
from aegis.server.cockpit.live import row_of
from aegis.server.cockpit.missions import graph_of
from aegis.server.cockpit.missions import rows as mission_rows
from aegis.server.cockpit.page import Visit
from aegis.server.cockpit.render import html

LISTED: Final = "60"
TRACED: Final = "200"
EXPORTED: Final = "1000"
WHOSE: Final = ("agent", "principal")  # sessions of several agents may have one name


async def sessions(visit: Visit) -> Response:
    """Sessions by their last entry; what people and the gateway added to one stands with its agent's calls."""
    query = {"limit": LISTED}
    if visit.query.get("cursor"):
        query["cursor"] = visit.query["cursor"]
    found = await ask(visit, "listSessions", query=query)
    return html(
        visit, "sessions.html", rows=_by_agent(found["items"]), next=found["next"], later="cursor" in visit.query
    )


def _by_agent(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for a session of an agent, with everybody whose receipts are in it."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for item in items:
        row = rows.setdefault((item["session"], item["agent"] or item["principal"]), {**item, "who": [], "count": 0})
        row["who"].append(item["principal"])
        row["count"] += item["count"]
        row["first"], row["last"] = min(row["first"], item["first"]), max(row["last"], item["last"])
    return list(rows.values())


async def trace(visit: Visit) -> Response:
    """One session, oldest first on each page; what answers a call stands below it."""
    found = await ask(visit, "traceSession", path={"id": visit.names["id"]}, query=_query(visit, TRACED))
    receipts = found["items"][::-1]
    lineages = _lineages(receipts)
    return html(
        visit,
        "trace.html",
        session=visit.names["id"],
        whose={name: visit.query[name] for name in WHOSE if visit.query.get(name)},
        rows=_nested(receipts),
        lineages=lineages,
        graph=await _graph(visit, lineages),
        flows=await asyncio.to_thread(_flows, visit, receipts),
        next=found["next"],
        later="cursor" in visit.query,
    )


async def export(visit: Visit) -> Response:
    """The session's receipts as lines, newest first."""
    return StreamingResponse(
        _lines(visit),
        media_type="application/x-ndjson",
        headers={"content-disposition": 'attachment; filename="session.jsonl"'},
    )


async def _lines(visit: Visit) -> AsyncIterator[bytes]:
    query = _query(visit, EXPORTED)
    while True:
        found = await ask(visit, "traceSession", path={"id": visit.names["id"]}, query=query)
        yield b"".join(orjson.dumps(item) + b"\n" for item in found["items"])
        if found["next"] is None:
            return
        query["cursor"] = found["next"]


def _query(visit: Visit, limit: str) -> dict[str, str]:
    query = {"limit": limit}
    for name in (*WHOSE, "cursor"):
        if visit.query.get(name):
            query[name] = visit.query[name]
    return query


def _nested(receipts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each receipt with its depth: what names a parent stands after it, one step in."""
    below: dict[str, list[dict[str, Any]]] = {}
    known = {receipt["receipt_id"] for receipt in receipts}
    roots = []
    for receipt in receipts:
        if receipt.get("parent") in known:
            below.setdefault(receipt["parent"], []).append(receipt)
        else:
            roots.append(receipt)
    rows: list[dict[str, Any]] = []
    waiting = [(receipt, 0) for receipt in reversed(roots)]
    while waiting:
        receipt, depth = waiting.pop()
        rows.append({**row_of(receipt), "depth": min(depth, 4), "action": receipt.get("action", "")})
        waiting.extend((child, depth + 1) for child in reversed(below.get(receipt["receipt_id"], ())))
    return rows


async def _graph(visit: Visit, lineages: list[list[str]]) -> Graph | None:
    """The delegation as a graph; what the missions are for is told to those who may list missions."""
    known = await mission_rows(visit) if lineages and may_ask(visit, "listMissions") else []
    return graph_of(known, lineages)


def _flows(visit: Visit, receipts: list[dict[str, Any]]) -> dict[str, Flow]:
    services = visit.services
    with services.store.reader() as reader:
        keys = services.gate.missions.trusted(reader, services.policy.current)
        return flows(reader, receipts, keys)


def _lineages(receipts: list[dict[str, Any]]) -> list[list[str]]:
    """The lines of delegation under which calls were made, each once."""
    found = {tuple(receipt["lineage"]) for receipt in receipts if receipt.get("lineage")}
    return [list(line) for line in sorted(found)][:20]
