"""Sessions: each as a timeline of calls, results, approvals and everything else that the log holds of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import orjson
from starlette.responses import Response, StreamingResponse

from aegis.cockpit.page import PageRequest, filters, html, page
from aegis.cockpit.rows import row_of
from aegis.context.flow import find_flow
from aegis.context.routes import LIST_SESSIONS, SESSION_FLOW, TRACE_SESSION, find_sessions, find_trace
from aegis.core.ports import Reader
from aegis.errors import InvalidCall
from aegis.missions.lineage import Graph, graph_of
from aegis.missions.pages import rows as mission_rows
from aegis.missions.registry import load_lineage
from aegis.missions.status import IssuerFor
from aegis.policy.mission import CompiledMission, compile_mission
from aegis.server.admission import SEE_MISSIONS
from aegis.server.validation import query_of

# Data flow of a session: which calls read data of a class, and where a call would have sent it on.

MOST: Final = 20  # missions of one session whose classes are looked up
_RULE: Final = "flow-"


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFlow:
    """What one call has to do with classes of data.

    `classes` are those that its tool reads or sends to; `refused` are the pairs (from, to) that were not let
    through, and `readers` the receipts (with their places) of earlier calls that had read what would have flowed.
    """

    classes: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    readers: tuple[tuple[str, int], ...] = ()


def flows(reader: Reader, receipts: Sequence[Mapping[str, Any]], issuer_for: IssuerFor) -> dict[str, SessionFlow]:
    """Return the flows of a session's receipts, oldest first, by receipt; calls without any are left out."""
    compiled: dict[str, Sequence[CompiledMission]] = {}
    read: dict[str, list[tuple[str, int]]] = {}
    found: dict[str, SessionFlow] = {}
    for receipt in receipts:
        mission = receipt.get("mission_id", "")
        if receipt["kind"] != "decision" or not mission:
            continue
        if mission not in compiled and len(compiled) < MOST:
            compiled[mission] = _compiled(reader, mission, issuer_for)
        lineage = compiled.get(mission, ())
        names = {name for one in lineage for name in one.classes_of(receipt.get("server"), receipt.get("tool", ""))}
        refused = _refused(receipt, {name for one in lineage for name, _ in one.classes})
        if not names and not refused:
            continue
        readers = [one for source, _ in refused for one in read.get(source, ())]
        found[receipt["receipt_id"]] = SessionFlow(
            classes=tuple(sorted(names)), refused=tuple(refused), readers=tuple(dict.fromkeys(readers))
        )
        if receipt.get("decision") in ("allow", "sanitize"):
            for name in names:
                read.setdefault(name, []).append((receipt["receipt_id"], receipt["index"]))
    return found


def _compiled(reader: Reader, mission: str, issuer_for: IssuerFor) -> Sequence[CompiledMission]:
    try:
        return [compile_mission(one) for one in load_lineage(reader, mission, issuer_for)[0]]
    except (InvalidCall, ValueError):  # a mission that does not hold any more names no classes
        return ()


def _refused(receipt: Mapping[str, Any], known: set[str]) -> list[tuple[str, str]]:
    """Return the pairs of classes in the rules of the flow guard; class names may hold hyphens themselves."""
    rules = {rule for guard in receipt.get("guards", ()) if guard["guard"] == "flow" for rule in guard["rules"]}
    return sorted(
        (source, sink) for source in known for sink in known if f"{_RULE}{source}-{sink}" in rules and source != sink
    )


# Where values came from, drawn: what was read on the left, calls on the right, both in their order.

MOST_DRAWN: Final = 60  # boxes of one side: what held a call is drawn first, the rest is told by its number
_WIDTH, _HEIGHT, _STEP, _BETWEEN = 250, 26, 32, 220  # pixels
_LABEL: Final = 30  # characters that fit into a box


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowBox:
    """One result or call of the drawing; `word` is its trust or its outcome."""

    receipt: str
    tool: str
    label: str
    word: str
    x: int
    y: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowLine:
    """All edges from one result to one call: as a path, and in words. `state` is why it is in colour."""

    path: str
    state: str
    told: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowDrawing:
    """The flow of a session; `rows` are its edges as a list, those that held a call first."""

    width: int
    height: int
    sources: tuple[FlowBox, ...]
    calls: tuple[FlowBox, ...]
    lines: tuple[FlowLine, ...]
    rows: tuple[dict[str, Any], ...]
    more: int
    complete: bool


def drawing(flow: Mapping[str, Any]) -> FlowDrawing | None:
    """Return the drawing of a session's flow; `None` where nothing was read."""
    edges = sorted(flow["edges"], key=lambda edge: not edge["holds"])
    if not flow["sources"]:
        return None
    left = _boxes(flow["sources"], [edge["from"]["receipt"] for edge in edges], "trust", 0)
    right = _boxes(flow["calls"], [edge["to"]["receipt"] for edge in edges], "decision", _WIDTH + _BETWEEN)
    between: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for edge in edges:
        between.setdefault((edge["from"]["receipt"], edge["to"]["receipt"]), []).append(edge)
    lines = [
        _curve(left[source], right[call], held)
        for (source, call), held in between.items()
        if source in left and call in right
    ]
    tools = {one["receipt"]: one["tool"] for one in (*flow["sources"], *flow["calls"])}
    rows = ({**edge, "source": tools.get(edge["from"]["receipt"], ""), "call": tools[edge["to"]["receipt"]]}
            for edge in edges[:MOST_DRAWN])  # fmt: skip
    return FlowDrawing(
        width=2 * _WIDTH + _BETWEEN,
        height=max(len(left), len(right)) * _STEP,
        sources=tuple(left.values()),
        calls=tuple(right.values()),
        lines=tuple(sorted(lines, key=lambda line: line.state)),  # in colour is drawn last, over the others
        rows=tuple(rows),
        more=len(flow["sources"]) + len(flow["calls"]) - len(left) - len(right),
        complete=flow["complete"],
    )


def _boxes(items: Sequence[Mapping[str, Any]], wanted: Sequence[str], word: str, x: int) -> dict[str, FlowBox]:
    """Return the boxes of one side in their order: those at an edge, then the newest others, as many as are drawn."""
    known = {item["receipt"]: item for item in items}
    first = [*dict.fromkeys(one for one in wanted if one in known), *reversed(known)]
    chosen = set(list(dict.fromkeys(first))[:MOST_DRAWN])
    drawn = [item for receipt, item in known.items() if receipt in chosen]
    return {
        item["receipt"]: FlowBox(
            receipt=item["receipt"],
            tool=item["tool"],
            label=item["tool"] if len(item["tool"]) <= _LABEL else item["tool"][: _LABEL - 1] + "…",
            word=item[word],
            x=x,
            y=at * _STEP,
        )
        for at, item in enumerate(drawn)
    }


def _curve(source: FlowBox, call: FlowBox, edges: Sequence[Mapping[str, Any]]) -> FlowLine:
    start, stop = source.y + _HEIGHT // 2, call.y + _HEIGHT // 2
    near, far = _WIDTH + _BETWEEN // 2, _WIDTH + _BETWEEN // 2
    return FlowLine(
        path=f"M{_WIDTH} {start}C{near} {start} {far} {stop} {call.x} {stop}",
        state=call.word if any(edge["holds"] for edge in edges) else "",
        told="; ".join(f"{edge['is']}: {edge['from']['path'] or 'text'} → {edge['to']['path']}" for edge in edges[:5]),
    )


LISTED: Final = "60"
TRACED: Final = "200"
ALIKE: Final = 5  # so many allowed calls in a row that say the same are one line, which opens
EXPORTED: Final = "1000"
WHOSE: Final = ("agent", "principal")  # sessions of several agents may have one name


async def sessions(request: PageRequest) -> Response:
    """Show sessions by their last entry; what people and the gateway added to one stands with its agent's calls."""
    query = {"limit": LISTED}
    if request.query.get("cursor"):
        query["cursor"] = request.query["cursor"]
    found = await asyncio.to_thread(find_sessions, request.services, query_of(LIST_SESSIONS, query))
    return html(
        request, "sessions.html", rows=_by_agent(found["items"]), next=found["next"], later="cursor" in request.query
    )


def _by_agent(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for a session of an agent, with everybody whose receipts are in it."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for item in items:
        row = rows.setdefault((item["session"], item["agent"] or item["principal"]), {**item, "who": [], "count": 0})
        row["who"].append(item["principal"])
        row["count"] += item["count"]
        row["first"], row["last"] = min(row["first"], item["first"]), max(row["last"], item["last"])
    return list(rows.values())


async def trace(request: PageRequest) -> Response:
    """Show one session, oldest first on each page; what answers a call stands below it."""
    found = await _trace(request, _query(request, TRACED))
    receipts = found["items"][::-1]
    lineages = _lineages(receipts)
    flows_by_receipt = await asyncio.to_thread(_flows, request, receipts)
    return html(
        request,
        "trace.html",
        session=request.path["id"],
        whose={name: request.query[name] for name in WHOSE if request.query.get(name)},
        runs=_runs(_nested(receipts), flows_by_receipt),
        lineages=lineages,
        graph=await _graph(request, lineages),
        flows=flows_by_receipt,
        drawn=await asyncio.to_thread(_drawn, request),
        next=found["next"],
        later="cursor" in request.query,
    )


async def export(request: PageRequest) -> Response:
    """Show the session's receipts as lines, newest first."""
    return StreamingResponse(
        _lines(request),
        media_type="application/x-ndjson",
        headers={"content-disposition": 'attachment; filename="session.jsonl"'},
    )


async def _lines(request: PageRequest) -> AsyncIterator[bytes]:
    query = _query(request, EXPORTED)
    while True:
        found = await _trace(request, query)
        yield b"".join(orjson.dumps(item) + b"\n" for item in found["items"])
        if found["next"] is None:
            return
        query["cursor"] = found["next"]


async def _trace(request: PageRequest, query: Mapping[str, str]) -> dict[str, Any]:
    wanted = query_of(TRACE_SESSION, query)
    return await asyncio.to_thread(find_trace, request.services, request.path["id"], wanted)


def _query(request: PageRequest, limit: str) -> dict[str, str]:
    query = {"limit": limit}
    for name in (*WHOSE, "cursor"):
        if request.query.get(name):
            query[name] = request.query[name]
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


def _runs(rows: Sequence[dict[str, Any]], flows: Mapping[str, SessionFlow]) -> list[list[dict[str, Any]]]:
    """Return the rows in their order, those together that say the same: what was decided otherwise stays in sight."""

    def said(row: Mapping[str, Any]) -> tuple[str, ...]:
        quiet = row["kind"] == "decision" and row["decision"] == "allow" and row["id"] not in flows
        return (row["agent"], row["tool"], row["summary"], str(row["depth"])) if quiet else (row["id"],)

    runs: list[list[dict[str, Any]]] = []
    for _, alike in groupby(rows, said):
        run = list(alike)
        runs += [run] if len(run) >= ALIKE else [[row] for row in run]
    return runs


async def _graph(request: PageRequest, lineages: list[list[str]]) -> Graph | None:
    """Return the delegation as a graph; what the missions are for is told to those who may list missions."""
    known = await mission_rows(request) if lineages and request.may(*SEE_MISSIONS.roles) else []
    return graph_of(known, lineages)


def _flows(request: PageRequest, receipts: list[dict[str, Any]]) -> dict[str, SessionFlow]:
    services = request.services
    with services.store.reader() as reader:
        keys = services.gate.missions.trusted(reader, services.policy.current)
        return flows(reader, receipts, keys)


def _drawn(request: PageRequest) -> FlowDrawing | None:
    query = {name: request.query[name] for name in WHOSE if request.query.get(name)}
    try:
        return drawing(find_flow(request.services, request.path["id"], query_of(SESSION_FLOW, query)))
    except InvalidCall:  # of several principals: each has a flow of its own, and the timeline shows all
        return None


def _lineages(receipts: list[dict[str, Any]]) -> list[list[str]]:
    """Return the lines of delegation under which calls were made, each once."""
    found = {tuple(receipt["lineage"]) for receipt in receipts if receipt.get("lineage")}
    return [list(line) for line in sorted(found)][:20]


PAGES: Final = (
    page("GET", "/sessions", sessions, "auditor", query=filters("cursor")),
    page("GET", "/sessions/{id:path}", trace, "auditor", query=filters(*WHOSE, "cursor")),
    page("GET", "/session-export/{id:path}", export, "auditor", query=filters(*WHOSE, "cursor")),
)
