"""A tool server that demands permits: every request is one call, and its body is exactly the call's arguments.

(1) the path names the tool, and nothing but the body carries arguments
(2) the body is bounded, strict JSON
(3) the permit of the header is redeemed for exactly this call
(4) the application gets the very bytes that were verified
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any, Final

import orjson

from aegis.core.canonical import canonical
from aegis.core.strict_json import parse
from aegis.errors import AegisError, InvalidCall, PermitInvalid
from aegis.facade.permits import PermitVerifier

HEADER: Final = b"aegis-permit"
MAX_BYTES: Final = 4 * 1_048_576

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class PermitMiddleware:
    """An ASGI application behind permits, which come in the header `Aegis-Permit`.

    Args:
        app: the tool server.
        verifier: who redeems permits: a `Client` with a key of the role `tool`, or `OfflinePermits`.
        tools: the tool that each path is.
        server: the namespace that is part of the tools' identity.
        open_paths: paths that run nothing, such as a health check.
        max_bytes: how large a body may be.

    Every other path is refused, and so is a web socket. Refusals have the shape
    `{"error": {"code", "message", "hint"}}`.
    """

    def __init__(
        self,
        app: Application,
        *,
        verifier: PermitVerifier,
        tools: Mapping[str, str],
        server: str | None = None,
        open_paths: Collection[str] = (),
        max_bytes: int = MAX_BYTES,
    ):
        self._app = app
        self._verifier = verifier
        self._tools = dict(tools)
        self._server = server
        self._open = frozenset(open_paths)
        self._max_bytes = max_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in self._open):
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            body = await self._verified(scope, receive)
        except AegisError as error:
            await _refuse(send, error)
            return
        await self._app(_with_length(scope, len(body)), _once(body, receive), send)  # (4)

    async def _verified(self, scope: Message, receive: Receive) -> bytes:
        # (1)
        tool = self._tools.get(scope["path"])
        if tool is None or scope["method"] != "POST" or scope["query_string"]:
            raise PermitInvalid("no tool answers such a request", code="no_tool")
        permits = [value for name, value in scope["headers"] if name.lower() == HEADER]
        if len(permits) != 1:
            raise PermitInvalid("this tool runs only with a permit", code="permit_missing", hint="send `Aegis-Permit`")
        # (2)
        arguments = parse(await self._read(receive))
        if not isinstance(arguments, dict):
            raise InvalidCall("the body is no JSON object")
        # (3)
        await self._verifier.aredeem(permits[0].decode("latin-1"), tool=tool, arguments=arguments, server=self._server)
        return canonical(arguments)

    async def _read(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise InvalidCall("the client went away")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_bytes:
                raise InvalidCall("the body is too large", code="too_large", status=413)
            if not message.get("more_body", False):
                return b"".join(parts)


def _with_length(scope: Message, size: int) -> Message:
    dropped = (b"content-length", b"transfer-encoding", HEADER)
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in dropped]
    return {**scope, "headers": [*headers, (b"content-length", b"%d" % size)]}


def _once(body: bytes, after: Receive) -> Receive:
    """The body that was verified, then what the server says of the caller."""
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            return await after()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _refuse(send: Send, error: AegisError) -> None:
    refusal = error if isinstance(error, InvalidCall) else PermitInvalid("the permit could not be checked", status=503)
    shape = {"error": {"code": refusal.code, "message": refusal.message, "hint": refusal.hint}}
    data = orjson.dumps(shape)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
