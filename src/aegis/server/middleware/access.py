"""One line in the log for each request: method, path, status and time; never a query, a header or a body."""

from __future__ import annotations

import logging
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
