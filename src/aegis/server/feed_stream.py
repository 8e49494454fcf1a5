"""A feed sent to one client as server-sent events, however slowly the client reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Generic, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from aegis.server.feed import Feed, Subscription

HEARTBEAT_S: Final = 15.0  # keeps proxies from closing a quiet stream
TICK_S: Final = 0.5  # how soon a stream sees that the gateway drains
SEND_S: Final = 30.0  # how long a client may leave its side of the connection full

T = TypeVar("T")


class FeedStream(StreamingResponse, Generic[T]):
    """Sends `events`, leaves the feed at their end, and gives up on a client that does not read."""

    def __init__(self, feed: Feed[T], subscription: Subscription[T], events: AsyncIterator[bytes]):
        self._feed = feed
        self._subscription = subscription
        super().__init__(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def stream_response(self, send: Send) -> None:
        async def within(message: Message) -> None:
            await asyncio.wait_for(send(message), SEND_S)

        await super().stream_response(within)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave(self._subscription)
