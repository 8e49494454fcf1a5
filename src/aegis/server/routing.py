"""From tables of endpoints to routes: one route a path, the same for every surface; and the surface of the API.

(1) the path has this method (405 otherwise, with `Allow`)
(2) the credential holds a role that the endpoint asks for (401, 403)
(3) path and query keep to their schemas (422)
(4) the body is bounded, strict JSON, and keeps to its schema (413, 415, 422)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aegis.core.call import MAX_NAME_CHARS
from aegis.core.json import parse
from aegis.errors import AegisError, InvalidCall
from aegis.server.admission import permit_running
from aegis.server.endpoint import NOBODY, ApiEndpoint, ApiRequest, Endpoint, Handler, RequestT, Surface
from aegis.server.http import Disconnected, body_pieces, error_response, is_large, read_body, request_id_of, while_there
from aegis.server.services import Services
from aegis.server.validation import body_check, query_check
from aegis.server.wire import SLOW_BODY, read_apart


def routes(endpoints: Iterable[Endpoint[RequestT]], surface: Surface[RequestT]) -> list[BaseRoute]:
    """Make one route for each path of the table, in its order."""
    paths: dict[str, dict[str, Endpoint[RequestT]]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [Route(path, ByMethod(methods, surface)) for path, methods in paths.items()]


class ByMethod:
    """All endpoints of one path."""

    def __init__(self, methods: Mapping[str, Endpoint[RequestT]], surface: Surface[RequestT]):
        self._methods = {method: surface.serve(endpoint) for method, endpoint in methods.items()}
        got = self._methods.get("GET")
        if got is not None and not methods["GET"].endless:
            self._methods["HEAD"] = got  # the server leaves the body out (RFC 9110, 9.3.2)
        self._otherwise = surface.refuse_method(", ".join(sorted(self._methods)))  # (1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._methods.get(scope["method"]) or self._otherwise)(scope, receive, send)


class Api:
    """The surface of programs: a key in `Authorization`, and JSON; failures are for the middleware around it."""

    def __init__(self, services: Services):
        self._services = services

    def serve(self, endpoint: ApiEndpoint) -> ASGIApp | None:
        """Return the endpoint behind its checks."""
        handler = endpoint.handler
        return None if handler is None else _Checked(endpoint, handler, self._services)

    def refuse_method(self, allow: str) -> ASGIApp:
        """Return the refusal (405) that names the methods of a path."""

        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            refusal = InvalidCall(
                "this path does not take this method", code="method_not_allowed", hint=allow, status=405
            )
            await error_response(refusal, scope["aegis.request_id"], {"allow": allow})(scope, receive, send)

        return refuse


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer where no route matches."""
    refusal = InvalidCall("there is nothing at this path", code="not_found", hint="see /openapi.json", status=404)
    await error_response(refusal, scope["aegis.request_id"])(scope, receive, send)


class _Checked:
    """One endpoint behind its checks."""

    def __init__(self, endpoint: ApiEndpoint, handler: Handler[ApiRequest], services: Services):
        self._endpoint = endpoint
        self._handler = handler
        self._services = services
        self._query = query_check(endpoint)
        self._body = body_check(endpoint)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint, services = self._endpoint, self._services
        headers = Headers(scope=scope)
        # (2)
        principal = NOBODY
        if endpoint.permission is not None:
            given = headers.getlist("authorization")
            credential = given[0].encode("latin-1") if len(given) == 1 else b"" if given else None
            principal = await services.principal(credential)
            await permit_running(principal, endpoint.permission, services.gate)
        # (3)
        path = _names(scope.get("path_params", {}))
        query = self._query(scope["query_string"])
        # (4)
        request = ApiRequest(
            services=services,
            principal=principal,
            request_id=scope["aegis.request_id"],
            path=path,
            query=query,
            headers=headers,
        )
        if endpoint.body is None:
            await self._respond(request, scope, receive, send)
        elif endpoint.body.streamed:
            slow = scope.get("extensions", {}).get(SLOW_BODY)
            await self._respond(replace(request, pieces=body_pieces(receive), slow=slow), scope, receive, send)
        elif is_large(scope):
            async with services.scheduler.large(principal.id):
                request = await self._read(request, await read_body(scope, receive), large=True)
                await self._respond(request, scope, receive, send)
        else:
            request = await self._read(request, await read_body(scope, receive), large=False)
            await self._respond(request, scope, receive, send)

    async def _read(self, request: ApiRequest, text: bytes, *, large: bool) -> ApiRequest:
        """Return what is asked, with its body; a worker parses one that is large."""
        wanted, check = self._endpoint.body, self._body
        if wanted is None or check is None or not (text or wanted.required):
            return replace(request, text=text)
        apart: list[bytes | None] | None = None
        workers, whose = self._services.workers, request.principal.id
        if not large:
            body = parse(text)
        elif wanted.shape is None:
            body = await asyncio.wrap_future(workers.compute(whose, parse, text))
        else:
            body, apart = await asyncio.wrap_future(workers.compute(whose, read_apart, text, wanted.shape))
        check(body)
        return replace(request, text=text, body=body, apart=apart)

    async def _respond(self, request: ApiRequest, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._endpoint.waits and not self._endpoint.endless:
            response = await self._handler(request)
            await response(scope, receive, send)
            return
        with self._services.scheduler.waiting(request.principal.id):
            work = self._handler(request)
            response = await (while_there(receive, work) if self._endpoint.waits else work)
            await response(scope, receive, send)


def _names(path: Mapping[str, Any]) -> Mapping[str, str]:
    for name, value in path.items():
        if not value.strip() or len(value) > MAX_NAME_CHARS:
            raise InvalidCall(f"`{name}` must have 1 to {MAX_NAME_CHARS} characters", code="malformed")
    return path


# What surrounds every route but `POST /v1/decisions`, from the outside in; that one does the same in one coroutine.

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
    """Return the path as the table of endpoints writes it: names in a path are the caller's words."""
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
