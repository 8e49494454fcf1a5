"""`POST /v1/decisions`, as a bare ASGI callable in front of the router.

    (1) the credential says who asks
    (2) the body, bounded, strict, with known members only
    (3) the gate decides and records
    (4) the decision goes out under the status that stands for it

Nothing else is on this path: no validation library, no chain of middleware.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from aegis.core.call import ToolCall, check_call
from aegis.core.decision import Decision
from aegis.core.principal import Principal
from aegis.core.strict_json import parse
from aegis.errors import AegisError, StoreError
from aegis.gate.decide import unavailable
from aegis.server.answers import encode
from aegis.server.body import Disconnected, is_large, read_body, while_there
from aegis.server.errors import send_error
from aegis.server.permissions import DECIDE, permit
from aegis.server.request_id import request_id_of
from aegis.server.services import Services
from aegis.server.wire import JSON_HEADERS, WHOLE_ANSWER, call_of, joined, read_apart, status_of

PATH: Final = "/v1/decisions"
_NONE: Final[dict[str, Any]] = {}
_log = logging.getLogger("aegis.server.decisions")


class Decisions:
    """The decision route of one gateway."""

    def __init__(self, services: Services):
        self._services = services
        self._tick: dict[bytes, Principal] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        authorization = given = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value if authorization is None else b""  # two credentials are none
            elif name == b"x-request-id":
                given = value
        request_id = request_id_of(given)
        try:
            await self._answer(authorization, request_id, scope, receive, send)
        except Disconnected:
            return
        except Exception as error:  # one shape for every failure, and no traceback outside
            if not isinstance(error, AegisError):
                _log.exception("a decision failed", extra={"request_id": request_id})
            await send_error(send, error, request_id)

    async def _answer(
        self, authorization: bytes | None, request_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        services = self._services
        # (1)
        principal: Principal | None = None
        with suppress(StoreError):
            principal = await self._principal(authorization)
            permit(principal, DECIDE)
        # (2)
        if is_large(scope):
            async with services.turns.large("" if principal is None else principal.id):
                if principal is not None:  # it may have waited for long
                    principal = await self._principal(authorization)
                data = await read_body(scope, receive)
                whose = "" if principal is None else principal.id
                value, (arguments,) = await asyncio.wrap_future(
                    services.workers.compute(whose, read_apart, data, "call")
                )
                del data
                decision = await self._decide(principal, joined(call_of(value), arguments), receive)
        else:
            call = call_of(parse(await read_body(scope, receive)))
            if principal is not None:
                await services.turns.take(principal.id)
            decision = await self._decide(principal, call, receive)
        # (4)
        status, more = status_of(decision)
        if status == 503:
            services.metrics.count_unrecorded()
        reads_findings = principal is not None and "auditor" in principal.roles
        body = encode(decision.to_wire(findings=reads_findings))
        headers = (
            *JSON_HEADERS,
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request_id.encode("ascii")),
            *more,
        )
        whole = scope.get("extensions", _NONE).get(WHOLE_ANSWER)
        if whole is not None:
            await whole(status, b"".join([b"%s: %s\r\n" % header for header in headers]), body)
            return
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _decide(self, principal: Principal | None, call: ToolCall, receive: Receive) -> Decision:
        """(3): the decision; a judge that looks at the call ends with its caller."""
        services = self._services
        if principal is None:  # who asks cannot be known without the store: nobody is allowed anything
            check_call(call)
            return unavailable(call)
        if services.policy.current.judges:
            return await while_there(receive, services.decide(call, principal=principal))
        return await services.decide(call, principal=principal)

    async def _principal(self, authorization: bytes | None) -> Principal:
        """`principal_of`, asked once for all requests of one key that one turn of the event loop handles.

        Whoever finds an answer here was received before that answer was looked up: the look-up that
        queues the clearing runs after every task that stands before it in the loop's queue was made.
        """
        known = self._tick.get(authorization) if authorization is not None else None
        if known is not None:
            return known
        principal = await self._services.principal(authorization)
        if authorization is not None and not self._services.store.is_remote:  # nothing ran since it was looked up
            if not self._tick:
                asyncio.get_running_loop().call_soon(self._tick.clear)
            self._tick[authorization] = principal
        return principal
