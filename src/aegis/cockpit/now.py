"""Now: what agents do at the moment, how it ends, how long it takes, and whether the gateway is well."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
from msgspec import structs
from starlette.responses import Response

from aegis.cockpit.page import PageRequest, filters, html, page
from aegis.cockpit.rollup import MINUTE_US
from aegis.cockpit.rows import Row, shape
from aegis.core.outcome import Outcome, outcome_of
from aegis.core.ports import Search
from aegis.core.times import MICROS
from aegis.errors import InvalidCall
from aegis.judges.pages import health as judge_health
from aegis.keys.accounts import find_session
from aegis.server.events import HEARTBEAT_S, TICK_S, FeedStream
from aegis.server.feed import Dropped, Subscription

# The live feed of the page: what is recorded, as rows, to browsers that are signed in.

FILTERS: Final = ("decision", "reason", "agent", "tool", "kind", "session")
STANDING_S: Final = 30.0  # how soon a stream ends after its session did


async def live(request: PageRequest) -> Response:
    """Show the stream of rows that match the filters of the query."""
    wanted = {name: request.query[name] for name in FILTERS if request.query.get(name)}
    feed = request.cockpit.feed
    subscription = await feed.subscribe()
    return FeedStream(feed, subscription, _live_rows(request, subscription, wanted))


async def _live_rows(
    request: PageRequest, subscription: Subscription[Row], wanted: Mapping[str, str]
) -> AsyncIterator[bytes]:
    yield b"retry: 2000\n\n"
    clock = asyncio.get_running_loop().time
    quiet, until = 0.0, clock() + STANDING_S
    while not request.services.draining.is_set():
        try:
            items = await subscription.get(TICK_S)
        except Dropped:
            yield b"event: lost\ndata: {}\n\n"
            return
        if clock() >= until:  # however much comes
            until = clock() + STANDING_S
            if not await asyncio.to_thread(_stands, request):
                yield b"event: ended\ndata: {}\n\n"
                return
        if not items:
            quiet += TICK_S
        text = b"".join(row.text for row in items if all(row.members[name] == wanted[name] for name in wanted))
        if text:
            quiet = 0.0
            yield text
        elif quiet >= HEARTBEAT_S:
            quiet = 0.0
            yield b": still here\n\n"


def _stands(request: PageRequest) -> bool:
    from aegis.cockpit.page import token_of

    with request.services.store.reader() as reader:
        return find_session(reader, token_of(request.headers), now=request.services.clock()) is not None


FEED_PAGES: Final = (page("GET", "/live", live, "auditor", "approver", query=filters(*FILTERS)),)


# Charts as numbers for inline SVG: every size is computed here, since pages carry no style of their own.

HEIGHT: Final = 48
WIDTH: Final = 6
GAP: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One part of a column: where it is, how large, and which outcome it stands for."""

    x: int
    y: float
    height: float
    outcome: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """A chart of stacked columns; `peak` is the sum of the highest."""

    width: int
    pieces: tuple[Piece, ...]
    peak: int


def stacked(columns: Sequence[Sequence[int]]) -> Stack:
    """Return a column for each row of counts (allow, sanitize, require_approval, block), blocks at the bottom."""
    peak = max((sum(column) for column in columns), default=0)
    pieces: list[Piece] = []
    for at, column in enumerate(columns):
        y = float(HEIGHT)
        for outcome, count in zip(("block", "hold", "change", "allow"), reversed(column), strict=True):
            if count:
                # What is rare is what matters: it is never thinner than can be seen.
                height = max(1.5, count * (HEIGHT - 2) / peak)
                y = max(0.0, y - height)
                pieces.append(Piece(x=at * (WIDTH + GAP), y=round(y, 1), height=round(height, 1), outcome=outcome))
    return Stack(width=len(columns) * (WIDTH + GAP), pieces=tuple(pieces), peak=peak)


ROWS: Final = 60
DAY_US: Final = 24 * 3600 * MICROS
MINUTES: Final = 60
TOP: Final = 8
MOST_COUNTED: Final = 10_000  # calls that are counted for a filter: bounds what one page asks of the store


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Decisions of the last day by outcome, refusals by reason, and by minute; `complete` where none is left out."""

    counts: list[int]
    reasons: Counter[str]
    minutes: dict[int, list[int]]
    complete: bool


async def now(request: PageRequest) -> Response:
    """Show the page; the feed goes on from the newest row by itself."""
    rollup = request.cockpit.rollup
    await rollup.watched()
    wanted = {name: request.query[name] for name in FILTERS if request.query.get(name)}
    rows = await asyncio.to_thread(_rows, request, wanted)
    at = request.services.clock()
    if wanted:
        figures = await asyncio.to_thread(_counted, request, wanted, at)
    else:
        counts, reasons = rollup.tally.since(at - DAY_US)
        figures = Figures(counts=counts, reasons=reasons, minutes=rollup.tally.minutes, complete=rollup.complete)
    return html(
        request,
        "now.html",
        rows=rows,
        wanted=wanted,
        counts=dict(zip(("allow", "sanitize", "require_approval", "block"), figures.counts, strict=True)),
        total=sum(figures.counts),
        reasons=figures.reasons.most_common(TOP),
        chart=_chart(figures.minutes, at),
        bounded=bool(wanted) and not figures.complete,
        most=MOST_COUNTED,
        latency=request.services.metrics.quantiles((0.5, 0.95, 0.99)),
        health=await _health(request),
        counted=bool(wanted) or rollup.complete,
        share=rollup.tally.next * 100 // max(1, rollup.size),
    )


def _rows(request: PageRequest, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the newest rows that match; a filter is a column of the log, so this is by index."""
    search = structs.replace(Search(limit=ROWS * 2), **wanted)
    with request.services.store.reader() as reader:
        found = reader.search(search)
    rows = [row.members for row in shape(request.services.store, found)]
    return [dict(row) for row in rows[:ROWS]]


def _counted(request: PageRequest, wanted: dict[str, Any], at: int) -> Figures:
    """Return the calls of the last day that match the filters, counted one by one, the newest so many."""
    figures = Figures(counts=[0, 0, 0, 0], reasons=Counter(), minutes={}, complete=True)
    search = structs.replace(Search(kind="decision", since=at - DAY_US, limit=MOST_COUNTED), **wanted)
    with request.services.store.reader() as reader:
        found = reader.search(search)
    for entry in found:
        if entry.kind != "decision":
            continue
        outcome = outcome_of(entry.decision)
        figures.counts[outcome] += 1
        figures.minutes.setdefault(entry.time // MINUTE_US, [0, 0, 0, 0])[outcome] += 1
        if outcome is not Outcome.ALLOW:
            figures.reasons[entry.reason] += 1
    return replace(figures, complete=len(found) < MOST_COUNTED)


def _chart(minutes: Mapping[int, list[int]], at: int) -> Stack:
    last = at // MINUTE_US
    columns = [minutes.get(minute, [0, 0, 0, 0]) for minute in range(last - MINUTES + 1, last + 1)]
    return stacked(columns)


async def _health(request: PageRequest) -> list[dict[str, str]]:
    services = request.services
    found = []
    try:
        await services.readiness.check()
        found.append({"name": "store and log", "state": "ok", "told": "readable and writable"})
    except InvalidCall as problem:
        found.append({"name": "store and log", "state": "bad", "told": problem.message})
    depth = services.gate.depth
    found.append({"name": "commit queue", "state": "ok" if depth < 1_000 else "warn", "told": f"{depth} waiting"})
    entry = await asyncio.to_thread(_newest, request)
    if entry is not None:
        found.append({"name": "newest receipt", "state": "ok", "told": "", "time": entry["time"]})
    return found + await asyncio.to_thread(_judges, request)


def _judges(request: PageRequest) -> list[dict[str, str]]:
    rules = request.services.policy.current.judges
    names = dict.fromkeys(judge.name for validator in rules.validators for judge in validator.judges)
    with request.services.store.reader() as reader:
        return judge_health(reader, list(names))


def _newest(request: PageRequest) -> dict[str, Any] | None:
    with request.services.store.reader() as reader:
        size = reader.head().size
        entry = reader.entry(size - 1) if size else None
    if entry is None:
        return None
    body: dict[str, Any] = orjson.loads(entry.body)
    return body


PAGES: Final = (page("GET", "/", now, "auditor", "approver", query=filters(*FILTERS)),)
