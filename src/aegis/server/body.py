"""Reading a request's body, never more of it than the limit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from starlette.types import Receive, Scope

from aegis.errors import InvalidCall

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


def is_too_long(content_length: bytes, limit: int = MAX_BODY_BYTES) -> bool:
    """Whether a declared length (digits, as the HTTP parser guarantees) is over the limit."""
    return len(content_length) > _DIGITS or int(content_length) > limit


def too_large(limit: int = MAX_BODY_BYTES) -> InvalidCall:
    """The refusal of a body over the limit."""
    return InvalidCall(f"the body is over {limit} bytes", code="too_large", hint="send less in one request", status=413)
