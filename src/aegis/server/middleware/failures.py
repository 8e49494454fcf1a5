"""Every failure becomes the one error shape; what nobody foresaw becomes a 500 without detail."""

from __future__ import annotations

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aegis.errors import AegisError
from aegis.server.body import Disconnected
from aegis.server.errors import error_response

_log = logging.getLogger("aegis.server")


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
                _log.exception("a request failed", extra={"request_id": scope["aegis.request_id"]})
            if begun:
                raise
            await error_response(error, scope["aegis.request_id"])(scope, receive, send)
