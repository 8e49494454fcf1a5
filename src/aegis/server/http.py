"""One shape for everything that goes wrong: `{"error": {"code", "message", "hint", "request_id"}}`.

Messages never carry input values, paths of this machine or tracebacks.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import itertools
import json
import os
import string
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from aegis.errors import ConfigError, InvalidCall, StoreCorrupt, StoreError, is_exhausted

# Answers as JSON.


def encode(value: Any) -> bytes:
    """`value` as JSON text; integers of any size keep their exact digits."""
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, which only the slower encoder writes
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Show a JSON answer."""
    return Response(encode(value), status_code=status, headers=headers, media_type="application/json")


# Reading a request's body, never more of it than the limit.

T = TypeVar("T")

LARGE_BYTES: Final = 16_384  # a body up to this size is parsed where it is: bounds how long that holds the loop
MAX_BODY_BYTES: Final = 4 * 1024 * 1024  # bounds what one request can make us hold in memory
_DIGITS: Final = 15  # longer numbers are over the limit, whatever they are


class Disconnected(Exception):
    """The client went away before its request was complete; nobody is left to answer."""


async def read_body(scope: Scope, receive: Receive, limit: int = MAX_BODY_BYTES) -> bytes:
    """Return the whole body; raises `InvalidCall` (413) as soon as it is known to be over `limit` bytes."""
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
    """Return the body as it arrives, of any length; raises `Disconnected` where the client goes away before its end."""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Disconnected
        more = message.get("more_body", False)
        if message.get("body"):
            yield message["body"]


def is_large(scope: Scope) -> bool:
    """Tell whether a body takes long to read, or may: one whose length is not said is taken for large."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return is_too_long(value, LARGE_BYTES)
        if name == b"transfer-encoding":
            return True
    return False


async def while_there(receive: Receive, work: Awaitable[T]) -> T:
    """Return what `work` comes to, as long as its caller, whose body was read, is there; raises `Disconnected` else.

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
    """Tell whether a declared length (digits, as the HTTP parser guarantees) is over the limit."""
    return len(content_length) > _DIGITS or int(content_length) > limit


def too_large(limit: int = MAX_BODY_BYTES) -> InvalidCall:
    """Return the refusal of a body over the limit."""
    return InvalidCall(f"the body is over {limit} bytes", code="too_large", hint="send less in one request", status=413)


# Limits that both an endpoint and its schema name.

MAX_CALLS: Final = 256  # calls in one batch: bounds how long one request can keep the others waiting
MAX_REASON_CHARS: Final = 1_000  # a reason is kept with what it explains: bounds what one caller can store
MAX_WAIT_S: Final = 60  # the longest long poll
MAX_WISH_CHARS: Final = 2_000  # plain words that a model drafts a policy from: bounds what it is sent


# Lists: `{"items": [...], "next": cursor or null}`; a cursor is opaque to clients and only names a place.

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1_000  # bounds what one answer can hold
MAX_CURSOR_CHARS: Final = 1_200
_MAX_DIGITS: Final = 16


def page(items: Sequence[Any], following: str | int | None) -> dict[str, Any]:
    """Return one page; `following` is where the next one begins, or `None` at the end."""
    return {"items": list(items), "next": None if following is None else encode_cursor(str(following))}


def encode_cursor(place: str) -> str:
    """Return the cursor that stands for a place in a list."""
    return base64.urlsafe_b64encode(place.encode()).rstrip(b"=").decode("ascii")


def place_of(cursor: str | None) -> str | None:
    """Return the place that a cursor stands for; raises `InvalidCall` where no list gave it."""
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise _unknown() from error


def index_of(cursor: str | None) -> int | None:
    """Return the log index that a cursor stands for; raises `InvalidCall` where no list gave it."""
    place = place_of(cursor)
    if place is None:
        return None
    if not (place.isascii() and place.isdigit() and len(place) <= _MAX_DIGITS):
        raise _unknown()
    return int(place)


def _unknown() -> InvalidCall:
    return InvalidCall("`cursor` is not one of this list", code="malformed", hint="send back `next` as it came")


# The id under which one request appears in its answer, in the logs and in error bodies.

MAX_CHARS: Final = 64  # an id of the client's is repeated in every log line: bounds what it can put there
_ALLOWED: Final = frozenset((string.ascii_letters + string.digits + "-_.").encode())
_counter = itertools.count(1)
_prefix: Final = os.urandom(6).hex()  # two processes never give the same id


def request_id_of(given: bytes | None) -> str:
    """Return the client's own `X-Request-Id` where it is plain and short, otherwise a new one."""
    if given and len(given) <= MAX_CHARS and _ALLOWED.issuperset(given):
        return given.decode("ascii")
    return f"{_prefix}-{next(_counter):x}"


RETRY_AFTER_S: Final = 1  # a lost store is asked again by every call, so a client may come back at once

_UNAVAILABLE: Final = InvalidCall(
    "the log cannot be read or written at the moment", code="unavailable", hint="try again later", status=503
)
_CORRUPT: Final = InvalidCall(
    "the store answered something that it never stored",
    code="corrupt",
    hint="verify the log: `aegis log verify`",
    status=503,
)
_EXHAUSTED: Final = InvalidCall(
    "the gateway has no memory, files or threads left at the moment",
    code="unavailable",
    hint="try again later",
    status=503,
)
_INTERNAL: Final = InvalidCall(
    "the gateway failed on this request", code="internal", hint="the log of the gateway has the details", status=500
)


def refusal_of(error: Exception) -> InvalidCall:
    """Return what a client is told of `error`; anything unforeseen is a 500 without detail."""
    if isinstance(error, InvalidCall):
        return error
    if isinstance(error, StoreCorrupt):
        return _CORRUPT
    if isinstance(error, StoreError):
        return _UNAVAILABLE
    if isinstance(error, ConfigError):
        return InvalidCall(
            "the configuration does not compile",
            code="config_invalid",
            hint="\n".join(str(problem) for problem in error.problems[:20]),
        )
    return _EXHAUSTED if is_exhausted(error) else _INTERNAL


def error_body(refusal: InvalidCall, request_id: str) -> bytes:
    """Return the body that stands for `refusal`."""
    return orjson.dumps(
        {
            "error": {
                "code": refusal.code,
                "message": refusal.message,
                "hint": refusal.hint,
                "request_id": request_id,
            }
        }
    )


def error_headers(status: int) -> dict[str, str]:
    """Return the headers that the status demands (RFC 9110, 11.6.1 and 10.2.3)."""
    if status == 401:
        return {"www-authenticate": "Bearer"}
    if status == 503:
        return {"retry-after": str(RETRY_AFTER_S)}
    return {}


def error_response(error: Exception, request_id: str, headers: dict[str, str] | None = None) -> Response:
    """Show the response that stands for `error`."""
    refusal = refusal_of(error)
    return Response(
        error_body(refusal, request_id),
        status_code=refusal.status,
        headers={**error_headers(refusal.status), **(headers or {})},
        media_type="application/json",
    )


async def send_error(send: Send, error: Exception, request_id: str) -> None:
    """Send the response that stands for `error` where no middleware adds what every answer carries."""
    response = error_response(error, request_id, {"x-request-id": request_id, "cache-control": "no-store"})
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})
