"""The live feed of the page: what is recorded, as rows, to browsers that are signed in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.responses import Response

from aegis.core.ports import Entry, Store
from aegis.keys.tokens import find_session
from aegis.server.cockpit import words
from aegis.server.cockpit.page import Visit
from aegis.server.feed import Dropped, Subscription
from aegis.server.feed_stream import HEARTBEAT_S, TICK_S, FeedStream

SHOWN: Final = ("decision", "result", "approval", "redemption", "revocation", "config", "alarm", "grant")
FILTERS: Final = ("decision", "reason", "agent", "tool", "kind", "session")
STANDING_S: Final = 30.0  # how soon a stream ends after its session did


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the feed, as data and as the text that browsers get."""

    index: int
    members: Mapping[str, Any]
    text: bytes


def row_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """A receipt as a line of a list; it holds names that callers chose, and no values."""
    decision = str(body.get("decision", ""))
    return {
        "index": body["index"],
        "id": body["receipt_id"],
        "time": body["time"],
        "kind": body["kind"],
        "decision": decision,
        "word": words.outcome(decision) if decision else str(body["kind"]),
        "risk": body.get("risk", ""),
        "reason": body.get("reason", ""),
        "agent": body.get("agent", ""),
        "tool": body.get("tool", ""),
        "session": body.get("session", ""),
        "approval": body.get("approval_id", ""),
        "summary": words.summary(body),
    }


def shape(store: Store, entries: Sequence[Entry]) -> list[Row]:
    """The rows that stand for `entries`."""
    rows = []
    for entry in entries:
        if entry.kind not in SHOWN or (entry.kind == "result" and entry.decision == "allow"):
            continue
        members = row_of(orjson.loads(entry.body))
        text = b"id: %d\nevent: row\ndata: %s\n\n" % (entry.index, orjson.dumps(members))
        rows.append(Row(index=entry.index, members=members, text=text))
    return rows


async def live(visit: Visit) -> Response:
    """The stream of rows that match the filters of the query."""
    wanted = {name: visit.query[name] for name in FILTERS if visit.query.get(name)}
    feed = visit.cockpit.feed
    subscription = await feed.subscribe()
    return FeedStream(feed, subscription, _rows(visit, subscription, wanted))


async def _rows(visit: Visit, subscription: Subscription[Row], wanted: Mapping[str, str]) -> AsyncIterator[bytes]:
    yield b"retry: 2000\n\n"
    clock = asyncio.get_running_loop().time
    quiet, until = 0.0, clock() + STANDING_S
    while not visit.services.draining.is_set():
        try:
            items = await subscription.get(TICK_S)
        except Dropped:
            yield b"event: lost\ndata: {}\n\n"
            return
        if clock() >= until:  # however much comes
            until = clock() + STANDING_S
            if not await asyncio.to_thread(_stands, visit):
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


def _stands(visit: Visit) -> bool:
    from aegis.server.cockpit.routing import token_of  # the routes import the pages

    with visit.services.store.reader() as reader:
        return find_session(reader, token_of(visit.headers), now=visit.services.clock()) is not None
