"""From the table of endpoints to routes: one route a path, and the same checks before every handler.

(1) the path has this method (405 otherwise, with `Allow`)
(2) the credential holds a role that the endpoint asks for (401, 403)
(3) path and query keep to their schemas (422)
(4) the body is bounded, strict JSON, and keeps to its schema (413, 415, 422)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from aegis.core.call import MAX_NAME_CHARS
from aegis.core.json import parse
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.server.endpoint import Asked, Endpoint, Handler
from aegis.server.http import body_pieces, error_response, is_large, read_body, while_there
from aegis.server.permissions import permit_running
from aegis.server.services import Services
from aegis.server.validation import BodyCheck, QueryCheck
from aegis.server.wire import SLOW_BODY, read_apart

_NOBODY = Principal(id="", roles=frozenset())


class Checked:
    """One endpoint behind its checks."""

    def __init__(self, endpoint: Endpoint, handler: Handler, services: Services):
        self._endpoint = endpoint
        self._handler = handler
        self._services = services
        self.endless = endpoint.replies[200].media == "text/event-stream" if 200 in endpoint.replies else False
        self._query = QueryCheck(endpoint.query)
        self._body = BodyCheck(endpoint.body.schema) if endpoint.body is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint, services = self._endpoint, self._services
        headers = Headers(scope=scope)
        # (2)
        principal = _NOBODY
        if endpoint.permission is not None:
            given = headers.getlist("authorization")
            credential = given[0].encode("latin-1") if len(given) == 1 else b"" if given else None
            principal = await services.principal(credential)
            await permit_running(principal, endpoint.permission, services.gate)
        # (3)
        path = _names(scope.get("path_params", {}))
        query = self._query(scope["query_string"])
        # (4)
        asked = Asked(
            services=services,
            principal=principal,
            request_id=scope["aegis.request_id"],
            path=path,
            query=query,
            headers=headers,
        )
        if endpoint.body is None:
            await self._respond(asked, scope, receive, send)
        elif endpoint.body.streamed:
            slow = scope.get("extensions", {}).get(SLOW_BODY)
            await self._respond(replace(asked, pieces=body_pieces(receive), slow=slow), scope, receive, send)
        elif is_large(scope):
            async with services.turns.large(principal.id):
                asked = await self._read(asked, await read_body(scope, receive), large=True)
                await self._respond(asked, scope, receive, send)
        else:
            asked = await self._read(asked, await read_body(scope, receive), large=False)
            await self._respond(asked, scope, receive, send)

    async def _read(self, asked: Asked, text: bytes, *, large: bool) -> Asked:
        """What is asked, with its body; a worker parses one that is large."""
        wanted, check = self._endpoint.body, self._body
        if wanted is None or check is None or wanted.media != "application/json" or not (text or wanted.required):
            return replace(asked, text=text)
        apart: list[bytes | None] | None = None
        workers, whose = self._services.workers, asked.principal.id
        if not large:
            body = parse(text)
        elif wanted.shape is None:
            body = await asyncio.wrap_future(workers.compute(whose, parse, text))
        else:
            body, apart = await asyncio.wrap_future(workers.compute(whose, read_apart, text, wanted.shape))
        check(body)
        return replace(asked, text=text, body=body, apart=apart)

    async def _respond(self, asked: Asked, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._endpoint.waits and not self.endless:
            response = await self._handler(asked)
            await response(scope, receive, send)
            return
        with self._services.turns.waiting(asked.principal.id):
            work = self._handler(asked)
            response = await (while_there(receive, work) if self._endpoint.waits else work)
            await response(scope, receive, send)


class ByMethod:
    """All endpoints of one path."""

    def __init__(self, methods: Mapping[str, Checked | None]):
        self._methods = dict(methods)
        got = methods.get("GET")
        if got is not None and not got.endless:
            self._methods["HEAD"] = got  # the server leaves the body out (RFC 9110, 9.3.2)
        self._allow = ", ".join(sorted(self._methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = self._methods.get(scope["method"])
        if chosen is None:  # (1)
            refusal = InvalidCall(
                "this path does not take this method", code="method_not_allowed", hint=self._allow, status=405
            )
            response = error_response(refusal, scope["aegis.request_id"], {"allow": self._allow})
            await response(scope, receive, send)
            return
        await chosen(scope, receive, send)


def routes(endpoints: Iterable[Endpoint], services: Services) -> list[BaseRoute]:
    """One route for each path of the table, in its order."""
    paths: dict[str, dict[str, Checked | None]] = {}
    for endpoint in endpoints:
        handler = endpoint.handler
        checked = None if handler is None else Checked(endpoint, handler, services)
        paths.setdefault(endpoint.path, {})[endpoint.method] = checked
    return [Route(path, ByMethod(methods)) for path, methods in paths.items()]


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer where no route matches."""
    refusal = InvalidCall("there is nothing at this path", code="not_found", hint="see /openapi.json", status=404)
    await error_response(refusal, scope["aegis.request_id"])(scope, receive, send)


def _names(path: Mapping[str, Any]) -> Mapping[str, str]:
    for name, value in path.items():
        if not value.strip() or len(value) > MAX_NAME_CHARS:
            raise InvalidCall(f"`{name}` must have 1 to {MAX_NAME_CHARS} characters", code="malformed")
    return path
