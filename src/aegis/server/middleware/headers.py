"""Every answer names its request, and is kept by no cache unless it says so itself."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aegis.server.request_id import request_id_of

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
