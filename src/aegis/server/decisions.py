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
from functools import partial
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from aegis.core.call import ToolCall, check_call
from aegis.core.decision import Decision
from aegis.core.json import parse
from aegis.core.principal import Principal
from aegis.errors import AegisError, InvalidCall, StoreError
from aegis.gate.decide import prepare, unavailable
from aegis.server.admission import DECIDE, PER_TURN, permit, principal_of
from aegis.server.endpoint import ApiEndpoint, ApiRequest, Body, Endpoint, Reply
from aegis.server.http import Disconnected, answer, encode, is_large, read_body, request_id_of, send_error, while_there
from aegis.server.schemas import RETRY, failing, ref
from aegis.server.services import Services
from aegis.server.wire import DEFAULT_RETRY_AFTER_S, JSON_HEADERS, WHOLE_ANSWER, call_of, joined, read_apart, status_of

PATH: Final = "/v1/decisions"
SHARED_S: Final = 0.05  # how long who comes waits for a question to a store elsewhere that was asked before
_NONE: Final[dict[str, Any]] = {}
_log = logging.getLogger("aegis.server.decisions")
_DECISION: Final = ref("Decision")

DECIDE_ONE: Final[ApiEndpoint] = Endpoint(
    method="POST",
    path=PATH,
    operation="decide",
    tag="judging",
    summary="Decide one tool call, on record, before it runs",
    permission=DECIDE,
    body=Body(schema=ref("ToolCall"), shape="call"),
    replies={
        200: Reply(text="allow, sanitize or block", schema=_DECISION),
        202: Reply(text="the call is held for approval", schema=_DECISION, headers={"Location": "the approval"}),
        409: Reply(text="the same `call_id` with another call: block, `conflict`", schema=_DECISION),
        429: Reply(text="rate limited: block, `rate_limited`, on record", schema=_DECISION, headers=RETRY),
        503: Reply(text="the log cannot be written: block, `unavailable`", schema=_DECISION, headers=RETRY),
    },
)


class DecisionEndpoint:
    """The decision route of one gateway."""

    def __init__(self, services: Services):
        self._services = services
        self._gate = services.gate
        self._parts = services.gate.parts
        self._tick: dict[bytes, Principal] = {}
        self._asking: dict[bytes | None, asyncio.Future[Principal]] = {}
        self._asker: asyncio.Task[None] | None = None

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
            async with services.scheduler.large("" if principal is None else principal.id):
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
                await services.scheduler.turn(principal.id)
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
        if self._parts.policy.current.judges:
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
        if self._parts.store.is_remote:
            return await self._asked(authorization)
        principal = await self._gate.alook(partial(principal_of, authorization, self._services.keys))
        if authorization is not None:  # nothing ran since it was looked up
            if not self._tick:
                asyncio.get_running_loop().call_soon(self._tick.clear)
            self._tick[authorization] = principal
        return principal

    async def _asked(self, authorization: bytes | None) -> Principal:
        """`principal_of` over a store elsewhere: who comes while it is asked shares the next question."""
        answer = self._asking.get(authorization)
        if answer is None:
            answer = self._asking[authorization] = asyncio.get_running_loop().create_future()
            if self._asker is None or self._asker.done():
                self._asker = asyncio.get_running_loop().create_task(self._ask())
        return await asyncio.shield(answer)

    async def _ask(self) -> None:
        while self._asking:
            asked, self._asking = self._asking, {}
            looks = asyncio.gather(*(self._look(authorization, told) for authorization, told in asked.items()))
            await asyncio.wait({looks}, timeout=SHARED_S)

    async def _look(self, authorization: bytes | None, told: asyncio.Future[Principal]) -> None:
        try:
            told.set_result(await self._gate.alook(partial(principal_of, authorization, self._services.keys)))
        except Exception as error:
            told.set_exception(error)
            told.exception()  # whoever asked may be gone, and nobody else is told


# `POST /v1/decisions:batch`: several calls at once, a few of them in each commit and each turn of the loop.

SLICE: Final = PER_TURN  # calls that are decided together: the others of the loop come between two slices


async def decide_batch(request: ApiRequest) -> Response:
    """Decide calls in their order; a malformed call refuses the whole batch before any is decided."""
    rows: list[Any] = request.body if isinstance(request.body, list) else request.body["calls"]
    apart = request.apart or [None] * len(rows)
    decisions: list[Decision] = []
    calls: list[ToolCall] = []
    for position, (row, arguments) in enumerate(zip(rows, apart, strict=True)):
        if position % SLICE == 0:
            await request.services.scheduler.turn(request.principal.id)
        calls.append(_checked(request, position, row, arguments))
    # A judge is told what became of the calls before.
    size = 1 if request.services.policy.current.judges else SLICE
    for first in range(0, len(calls), size):
        await request.services.scheduler.turn(request.principal.id)
        decisions += await asyncio.gather(
            *(request.services.decide(call, principal=request.principal) for call in calls[first : first + size])
        )
    reads_findings = "auditor" in request.principal.roles
    wire = {"decisions": [decision.to_wire(findings=reads_findings) for decision in decisions]}
    unrecorded = [decision for decision in decisions if decision.receipt is None]
    for _ in unrecorded:
        request.services.metrics.count_unrecorded()
    if unrecorded:
        return answer(wire, 503, {"retry-after": str(DEFAULT_RETRY_AFTER_S)})
    return answer(wire)


DECIDE_BATCH: Final = Endpoint(
    method="POST",
    path="/v1/decisions:batch",
    operation="decideBatch",
    tag="judging",
    summary="Decide several tool calls in one request",
    permission=DECIDE,
    handler=decide_batch,
    body=Body(schema=ref("Batch"), shape="batch"),
    waits=True,
    replies={
        200: Reply(text="one decision for each call, in order", schema=ref("BatchDecision")),
        503: Reply(
            text="the log cannot be written: some are block, `unavailable`",
            schema={"anyOf": [ref("BatchDecision"), ref("Error")]},
            headers=RETRY,
        ),
        **failing(s429="too many requests of this key wait"),
    },
)


def _checked(request: ApiRequest, position: int, row: Any, arguments: bytes | None) -> ToolCall:
    try:
        call = joined(call_of(row), arguments)
        prepare(request.principal, call)
    except InvalidCall as error:
        raise InvalidCall(
            f"call {position}: {error.message}", code=error.code, hint=error.hint, status=error.status
        ) from error
    return call


ENDPOINTS: Final = (DECIDE_ONE, DECIDE_BATCH)
