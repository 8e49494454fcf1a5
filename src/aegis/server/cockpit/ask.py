"""Asking an endpoint of the API for a person: the same rights, checks and handler as over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlencode

import orjson

from aegis.server.body import MAX_BODY_BYTES
from aegis.server.cockpit.page import Visit
from aegis.server.endpoint import Asked, Endpoint
from aegis.server.permissions import permit
from aegis.server.validation import BodyCheck, QueryCheck


async def ask(
    visit: Visit,
    operation: str,
    *,
    path: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
    body: Any = None,
    text: bytes = b"",
) -> Any:
    """What the endpoint answers, parsed; raises `InvalidCall` as it would refuse over HTTP."""
    endpoint, query_check, body_check = _checked(operation)
    if endpoint.permission is not None:
        permit(visit.principal, endpoint.permission)
    values = query_check(urlencode(query or {}).encode())
    if body is not None and body_check is not None:
        body_check(body)
    if len(text) > MAX_BODY_BYTES or endpoint.handler is None:
        raise ValueError("this cannot be asked from a page")
    response = await endpoint.handler(
        Asked(
            services=visit.services,
            principal=visit.principal,
            request_id=visit.request_id,
            path=path or {},
            query=values,
            headers={},
            body=body,
            text=text,
        )
    )
    if response.media_type == "application/json":
        return orjson.loads(bytes(response.body))
    return bytes(response.body)


def may_ask(visit: Visit, operation: str) -> bool:
    """Whether the person has the right to ask."""
    permission = _checked(operation)[0].permission
    return permission is None or not permission.roles or visit.may(*permission.roles)


@cache
def _checked(operation: str) -> tuple[Endpoint, QueryCheck, BodyCheck | None]:
    from aegis.server.table import ENDPOINTS  # the table imports handlers, which pages may import too

    endpoint = next(one for one in ENDPOINTS if one.operation == operation)
    body = endpoint.body
    check = BodyCheck(body.schema) if body is not None and body.media == "application/json" else None
    return endpoint, QueryCheck(endpoint.query), check
