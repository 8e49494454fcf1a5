"""From the table of endpoints to routes: one route a path, and the same checks before every handler.

(1) the path has this method (405 otherwise, with `Allow`)
(2) the credential holds a role that the endpoint asks for (401, 403)
(3) path and query keep to their schemas (422)
(4) the body is bounded, strict JSON, and keeps to its schema (413, 415, 422)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from aegis.core.call import MAX_NAME_CHARS
from aegis.core.principal import Principal
from aegis.core.strict_json import parse
from aegis.errors import InvalidCall
from aegis.server.body import body_pieces, read_body
from aegis.server.endpoint import Asked, Endpoint, Handler
from aegis.server.errors import error_response
from aegis.server.permissions import permit
from aegis.server.services import Services
from aegis.server.validation import BodyCheck, QueryCheck
from aegis.server.wire import SLOW_BODY

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
            permit(principal, endpoint.permission)
        # (3)
        path = _names(scope.get("path_params", {}))
        query = self._query(scope["query_string"])
        # (4)
        text, body = b"", None
        streamed = endpoint.body is not None and endpoint.body.streamed
        if endpoint.body is not None and self._body is not None and not streamed:
            text = await read_body(scope, receive)
            if endpoint.body.media == "application/json" and (text or endpoint.body.required):
                body = parse(text)
                self._body(body)
        response = await self._handler(
            Asked(
                services=services,
                principal=principal,
                request_id=scope["aegis.request_id"],
                path=path,
                query=query,
                headers=headers,
                body=body,
                text=text,
                pieces=body_pieces(receive) if streamed else None,
                slow=scope.get("extensions", {}).get(SLOW_BODY) if streamed else None,
            )
        )
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
