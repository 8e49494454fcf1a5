"""The live feed of the page: what is recorded, as rows, to browsers that are signed in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

from starlette.responses import Response

from aegis.cockpit.page import PageRequest, filters, page
from aegis.cockpit.rows import Row
from aegis.keys.tokens import find_session
from aegis.server.events import HEARTBEAT_S, TICK_S, FeedStream
from aegis.server.feed import Dropped, Subscription

FILTERS: Final = ("decision", "reason", "agent", "tool", "kind", "session")
STANDING_S: Final = 30.0  # how soon a stream ends after its session did


async def live(request: PageRequest) -> Response:
    """Show the stream of rows that match the filters of the query."""
    wanted = {name: request.query[name] for name in FILTERS if request.query.get(name)}
    feed = request.cockpit.feed
    subscription = await feed.subscribe()
    return FeedStream(feed, subscription, _rows(request, subscription, wanted))


async def _rows(
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
    from aegis.cockpit.guarding import token_of

    with request.services.store.reader() as reader:
        return find_session(reader, token_of(request.headers), now=request.services.clock()) is not None


PAGES: Final = (page("GET", "/live", live, "auditor", "approver", query=filters(*FILTERS)),)
