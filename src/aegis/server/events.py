"""`GET /v1/events`: decisions, approvals, alerts, configuration and agents as server-sent events.

The id of an event is the log index of the receipt behind it, so a client that comes back with
`Last-Event-ID` misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Generic, TypeVar

import orjson
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from aegis.approvals.queue import find
from aegis.approvals.view import approval_view
from aegis.core.ports import Entry, Reader, Store, never_came
from aegis.errors import InvalidCall, StoreError
from aegis.gate.view import summary
from aegis.server.admission import WATCH, permit
from aegis.server.endpoint import ApiEndpoint, ApiRequest, Endpoint, Reply
from aegis.server.feed import Dropped, Feed, Sent, Subscription
from aegis.server.http import encode
from aegis.server.schemas import failing, index

# A feed sent to one client as server-sent events, however slowly the client reads.

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


RETRY_MS: Final = 1_000
MAX_DIGITS: Final = 16

# Receipts that are an event of their own; a result is one only when it was not allowed as it was.
_NAMES: Final = {
    "decision": "decision",
    "approval": "approval",
    "redemption": "approval",
    "alarm": "alert",
    "config": "config",
    "revocation": "agent",
}


def shape(store: Store, entries: Sequence[Entry]) -> list[Sent]:
    """Return the events that stand for `entries`; a held call is both a decision and an approval."""
    sent: list[Sent] = []
    for entry in entries:
        name = _NAMES.get(entry.kind)
        if entry.kind == "result" and entry.decision != "allow" and not never_came(entry):
            name = "alert"
        if name is None:
            continue
        body: dict[str, Any] = orjson.loads(entry.body)
        text = b""
        if name != "approval":
            text = _event(name, entry.index, summary(body))
        if "approval_id" in body and entry.kind in ("decision", "approval", "redemption"):
            with store.reader() as reader:
                text += _event("approval", entry.index, _approval(reader, body))
        sent.append(Sent(index=entry.index, text=text))
    return sent


def _approval(reader: Reader, body: dict[str, Any]) -> dict[str, Any]:
    """Return the approval as it was at this receipt, without the arguments."""
    state = body["action"] if body["kind"] in ("approval", "redemption") else "pending"
    approval = find(reader, body["approval_id"])
    if approval is None:
        return {"id": body["approval_id"], "state": state}
    return {**approval_view(approval, now=0), "state": state}


def _event(name: str, index: int, data: dict[str, Any]) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (index, name.encode(), encode(data))


async def events(request: ApiRequest) -> Response:
    """Show the stream; everything after `Last-Event-ID` (or `after`) first, then what is recorded."""
    after = request.query.get("after")
    given = request.headers.get("last-event-id")
    if given:
        if not (given.isascii() and given.isdigit() and len(given) <= MAX_DIGITS):
            raise InvalidCall("`Last-Event-ID` is not an id of this stream", hint="send back the last `id` as it came")
        after = int(given)
    feed = request.services.feed
    subscription = await feed.subscribe()
    return FeedStream(feed, subscription, _stream(request, subscription, after))


async def _stream(request: ApiRequest, subscription: Subscription[Sent], after: int | None) -> AsyncIterator[bytes]:
    services = request.services
    yield b"retry: %d\n\n" % RETRY_MS
    if after is not None:
        try:
            async for items in services.feed.past(after + 1, subscription.start):
                if not await _stands(request):
                    return
                yield b"".join(item.text for item in items)
        except StoreError:
            yield b": the store is not readable now, come back\n\n"
            return
    quiet = 0.0
    while not services.draining.is_set():
        try:
            items = await subscription.get(TICK_S)
        except Dropped:
            yield b": too slow, come back with the last id\n\n"
            return
        if not await _stands(request):
            return
        quiet = 0.0 if items else quiet + TICK_S
        if items:
            yield b"".join(item.text for item in items)
        elif quiet >= HEARTBEAT_S:
            quiet = 0.0
            yield b": still here\n\n"
    yield b": the gateway goes down, come back\n\n"


async def _stands(request: ApiRequest) -> bool:
    """Tell whether the key with which the stream was opened still opens it."""
    try:
        permit(await request.services.principal(request.headers["authorization"].encode("latin-1")), WATCH)
    except (InvalidCall, StoreError):
        return False
    return True


WATCH_EVENTS: Final[ApiEndpoint] = Endpoint(
    method="GET",
    path="/v1/events",
    operation="watchEvents",
    tag="approvals",
    summary="Decisions, approvals, alerts, configuration and agents as they are recorded",
    permission=WATCH,
    handler=events,
    query=(index("after", "first everything recorded after this log index; `Last-Event-ID` says the same"),),
    replies={
        200: Reply(text="server-sent events; the id is the log index", media="text/event-stream"),
        **failing(s429="too many listen already, or too many requests of this key wait"),
    },
)
