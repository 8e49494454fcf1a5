"""Reading a request's body, never more of it than the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Final, TypeVar

from starlette.types import Receive, Scope

from aegis.errors import InvalidCall

T = TypeVar("T")

LARGE_BYTES: Final = 16_384  # a body up to this size is parsed where it is: bounds how long that holds the loop
MAX_BODY_BYTES: Final = 4 * 1024 * 1024  # bounds what one request can make us hold in memory
_DIGITS: Final = 15  # longer numbers are over the limit, whatever they are


class Disconnected(Exception):
    """The client went away before its request was complete; nobody is left to answer."""


async def read_body(scope: Scope, receive: Receive, limit: int = MAX_BODY_BYTES) -> bytes:
    """The whole body; raises `InvalidCall` (413) as soon as it is known to be over `limit` bytes."""
    message = await receive()
    if message["type"] != "http.request":
        raise Disconnected
    first: bytes = message.get("body", b"")
    if not message.get("more_body", False):  # one chunk: by far the most frequent case
        if len(first) > limit:
            raise too_large(limit)
        return first
    for name, value in scope["headers"]:
        if name == b"content-length" and is_too_long(value, limit):
            raise too_large(limit)
    chunks, size = [first], len(first)
    while True:
        if size > limit:
            raise too_large(limit)
        message = await receive()
        if message["type"] != "http.request":
            raise Disconnected
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if not message.get("more_body", False):
            break
    if size > limit:
        raise too_large(limit)
    return b"".join(chunks)


async def body_pieces(receive: Receive) -> AsyncIterator[bytes]:
    """The body as it arrives, of any length; raises `Disconnected` where the client goes away before its end."""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Disconnected
        more = message.get("more_body", False)
        if message.get("body"):
            yield message["body"]


def is_large(scope: Scope) -> bool:
    """Whether a body takes long to read, or may: one whose length is not said is taken for large."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return is_too_long(value, LARGE_BYTES)
        if name == b"transfer-encoding":
            return True
    return False


async def while_there(receive: Receive, work: Awaitable[T]) -> T:
    """What `work` comes to, as long as its caller, whose body was read, is there; raises `Disconnected` else.

    Work whose caller went away is given up, and with it whatever judge or wait it began.
    """
    doing = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise Disconnected
    finally:
        for task in (doing, gone):
            task.cancel()
        await asyncio.gather(doing, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def is_too_long(content_length: bytes, limit: int = MAX_BODY_BYTES) -> bool:
    """Whether a declared length (digits, as the HTTP parser guarantees) is over the limit."""
    return len(content_length) > _DIGITS or int(content_length) > limit


def too_large(limit: int = MAX_BODY_BYTES) -> InvalidCall:
    """The refusal of a body over the limit."""
    return InvalidCall(f"the body is over {limit} bytes", code="too_large", hint="send less in one request", status=413)
