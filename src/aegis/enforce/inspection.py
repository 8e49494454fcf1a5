"""Answers that are looked at as they pass: whole ones at once, streams event by event. What looks may raise."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from aegis.enforce.transport import with_async_stream, with_stream
from aegis.enforce.turn import aread_events, read_events
from aegis.wire.model import WireEvent
from aegis.wire.sse import SseReader, sse_bytes

# Takes what an answer or an event of it says, as JSON; raises where that must not go on.
Look = Callable[[Any], None]


def inspected(response: Any, look: Look) -> Any:
    """An answer of httpx, whose content has passed `look` when somebody sees it."""
    if _is_stream(response):
        return with_stream(response, _events(response.iter_bytes(), look))
    _looked(response.read(), look)
    return response


async def ainspected(response: Any, look: Look) -> Any:
    """The async twin of `inspected`."""
    if _is_stream(response):
        return with_async_stream(response, _aevents(response.aiter_bytes(), look))
    _looked(await response.aread(), look)
    return response


def _is_stream(response: Any) -> bool:
    return "event-stream" in response.headers.get("content-type", "").lower()


def _events(chunks: Iterator[bytes], look: Look) -> Iterator[bytes]:
    for events in read_events(SseReader(), chunks):
        yield b"".join([_passed(event, look) for event in events])


async def _aevents(chunks: AsyncIterator[bytes], look: Look) -> AsyncIterator[bytes]:
    async for events in aread_events(SseReader(), chunks):
        yield b"".join([_passed(event, look) for event in events])


def _passed(event: WireEvent, look: Look) -> bytes:
    _looked(event.data, look)
    return sse_bytes(event)


def _looked(content: bytes | str, look: Look) -> None:
    try:
        said = json.loads(content)
    except ValueError:
        return  # the packages read nothing from it either
    look(said)
