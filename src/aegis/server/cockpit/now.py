"""Now: what agents do at the moment, how it ends, how long it takes, and whether the gateway is well."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import orjson
from starlette.responses import Response

from aegis.core.ports import Search
from aegis.core.times import MICROS
from aegis.errors import InvalidCall
from aegis.server.cockpit import live
from aegis.server.cockpit.charts import Stack, stacked
from aegis.server.cockpit.judging import health as judge_health
from aegis.server.cockpit.page import Visit
from aegis.server.cockpit.render import html
from aegis.server.cockpit.tally import MINUTE_US

ROWS: Final = 60
DAY_US: Final = 24 * 3600 * MICROS
MINUTES: Final = 60
TOP: Final = 8


async def now(visit: Visit) -> Response:
    """The page; the feed goes on from the newest row by itself."""
    rollup = visit.cockpit.rollup
    await rollup.watched()
    wanted = {name: visit.query[name] for name in live.FILTERS if visit.query.get(name)}
    rows = await asyncio.to_thread(_rows, visit, wanted)
    at = visit.services.clock()
    counts, reasons = rollup.tally.since(at - DAY_US)
    return html(
        visit,
        "now.html",
        rows=rows,
        wanted=wanted,
        counts=dict(zip(("allow", "sanitize", "require_approval", "block"), counts, strict=True)),
        total=sum(counts),
        reasons=reasons.most_common(TOP),
        chart=_chart(visit, at),
        latency=visit.services.metrics.quantiles((0.5, 0.95, 0.99)),
        health=await _health(visit),
        counted=rollup.complete,
        share=rollup.tally.next * 100 // max(1, rollup.size),
    )


def _rows(visit: Visit, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """The newest rows that match; a filter is a column of the log, so this is by index."""
    search = replace(Search(limit=ROWS * 2), **wanted)
    with visit.services.store.reader() as reader:
        found = reader.search(search)
    rows = [row.members for row in live.shape(visit.services.store, found)]
    return [dict(row) for row in rows[:ROWS]]


def _chart(visit: Visit, at: int) -> Stack:
    minutes = visit.cockpit.rollup.tally.minutes
    last = at // MINUTE_US
    columns = [minutes.get(minute, [0, 0, 0, 0]) for minute in range(last - MINUTES + 1, last + 1)]
    return stacked(columns)


async def _health(visit: Visit) -> list[dict[str, str]]:
    services = visit.services
    found = []
    try:
        await services.readiness.check()
        found.append({"name": "store and log", "state": "ok", "told": "readable and writable"})
    except InvalidCall as problem:
        found.append({"name": "store and log", "state": "bad", "told": problem.message})
    depth = services.gate.depth
    found.append({"name": "commit queue", "state": "ok" if depth < 1_000 else "warn", "told": f"{depth} waiting"})
    entry = await asyncio.to_thread(_newest, visit)
    if entry is not None:
        found.append({"name": "newest receipt", "state": "ok", "told": "", "time": entry["time"]})
    return found + await asyncio.to_thread(_judges, visit)


def _judges(visit: Visit) -> list[dict[str, str]]:
    rules = visit.services.policy.current.judges
    names = dict.fromkeys(judge.name for validator in rules.validators for judge in validator.judges)
    with visit.services.store.reader() as reader:
        return judge_health(reader, list(names))


def _newest(visit: Visit) -> dict[str, Any] | None:
    with visit.services.store.reader() as reader:
        size = reader.head().size
        entry = reader.entry(size - 1) if size else None
    if entry is None:
        return None
    body: dict[str, Any] = orjson.loads(entry.body)
    return body
