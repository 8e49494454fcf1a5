"""Reading a request's body, never more of it than the limit."""

from __future__ import annotations

from typing import Final

from starlette.types import Receive, Scope

from aegis.errors import InvalidCall

MAX_BODY_BYTES: Final = 4 * 1024 * 1024  # bounds what one request can make us hold in memory
_DIGITS: Final = 15  # longer numbers are over the limit, whatever they are


class Disconnected(Exception):
    """The client went away before its request was complete; nobody is left to answer."""


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """The whole body; raises `InvalidCall` (413) as soon as it is known to be over `MAX_BODY_BYTES`."""
    message = await receive()
    if message["type"] != "http.request":
        raise Disconnected
    first: bytes = message.get("body", b"")
    if not message.get("more_body", False):  # one chunk: by far the most frequent case
        if len(first) > MAX_BODY_BYTES:
            raise too_large()
        return first
    for name, value in scope["headers"]:
        if name == b"content-length" and is_too_long(value):
            raise too_large()
    chunks, size = [first], len(first)
    while True:
        if size > MAX_BODY_BYTES:
            raise too_large()
        message = await receive()
        if message["type"] != "http.request":
            raise Disconnected
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if not message.get("more_body", False):
            break
    if size > MAX_BODY_BYTES:
        raise too_large()
    return b"".join(chunks)


def is_too_long(content_length: bytes) -> bool:
    """Whether a declared length (digits, as the HTTP parser guarantees) is over the limit."""
    return len(content_length) > _DIGITS or int(content_length) > MAX_BODY_BYTES


def too_large() -> InvalidCall:
    """The refusal of a body over the limit."""
    return InvalidCall(
        f"the body is over {MAX_BODY_BYTES} bytes", code="too_large", hint="send less in one request", status=413
    )
