"""What surrounds every route but the decision path, from the outside in; one class, one small file.

The decision path does the same by itself, in one coroutine.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aegis.errors import AegisError
from aegis.server.http import Disconnected, error_response, request_id_of

# One line in the log for each request: method, path, status and time; never a query, a header or a body.

_log = logging.getLogger("aegis.server.access")


class AccessLog:
    """Logs what was asked and how it ended, after it ended."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, answer)
        finally:
            _log.info(
                "request",
                extra={
                    "request_id": scope["aegis.request_id"],
                    "method": scope["method"],
                    "route": _route(scope),
                    "status": status,
                    "ms": round((perf_counter() - started) * 1e3, 3),
                },
            )


def _route(scope: Scope) -> str:
    """The path as the table of endpoints writes it: names in a path are the caller's words."""
    route = scope.get("route")
    return getattr(route, "path", "") if route is not None else ""


# Every failure becomes the one error shape; what nobody foresaw becomes a 500 without detail.

_failures_log = logging.getLogger("aegis.server")


class Failures:
    """Turns exceptions into answers; after an answer has begun, the connection is all that is left to end."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except Disconnected:
            return
        except Exception as error:
            if not isinstance(error, AegisError):
                _failures_log.exception("a request failed", extra={"request_id": scope["aegis.request_id"]})
            if begun:
                raise
            await error_response(error, scope["aegis.request_id"])(scope, receive, send)


# Every answer names its request, and is kept by no cache unless it says so itself.

_UNCACHED: Final = (b"cache-control", b"no-store")


class AnswerHeaders:
    """Gives the request its id, and the answer `X-Request-Id`, `Cache-Control: no-store` and `nosniff`."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), None)
        request_id = scope["aegis.request_id"] = request_id_of(given)
        added = [(b"x-request-id", request_id.encode("ascii")), (b"x-content-type-options", b"nosniff")]

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                given_headers = [*message.get("headers", ())]
                if not any(name == b"cache-control" for name, _ in given_headers):
                    given_headers.append(_UNCACHED)
                message["headers"] = [*given_headers, *added]
            await send(message)

        await self._app(scope, receive, answer)


MIDDLEWARE: Final = (AnswerHeaders, AccessLog, Failures)
