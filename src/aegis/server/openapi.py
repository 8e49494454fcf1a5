"""`GET /openapi.json`: the description of the API, generated from the table that also serves it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from starlette.responses import Response

from aegis._version import __version__
from aegis.server.answers import answer
from aegis.server.endpoint import Asked, Endpoint, Param, Reply
from aegis.server.schemas import COMPONENTS
from aegis.server.schemas.common import ref

_ERROR: Final = ref("Error")


async def openapi(asked: Asked) -> Response:
    """The description as JSON."""
    return answer(description())


@lru_cache(maxsize=1)
def description() -> dict[str, Any]:
    """The OpenAPI 3.1 document of this version."""
    from aegis.server.table import ENDPOINTS  # the table holds the endpoint that asks for this

    return describe(ENDPOINTS)


def describe(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of `endpoints`."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = endpoint.path.replace(":path}", "}")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Aegis",
            "version": __version__,
            "summary": "Every tool call of an agent is decided before it runs, and every decision can be proved.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    permission = endpoint.permission
    operation: dict[str, Any] = {
        "operationId": endpoint.operation,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": [
            *(_parameter(param, "path") for param in endpoint.path_params),
            *(_parameter(param, "query") for param in endpoint.query),
        ],
        "responses": {str(status): _response(reply) for status, reply in sorted(all_replies(endpoint).items())},
        "security": [] if permission is None else [{"key": []}],
    }
    if permission is not None:
        roles = " or ".join(f"`{role}`" for role in permission.roles) or "any"
        operation["description"] = f"Role: {roles}; {permission.reason}."
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.body.required,
            "content": {endpoint.body.media: {"schema": endpoint.body.schema}},
        }
    return operation


def all_replies(endpoint: Endpoint) -> dict[int, Reply]:
    """The declared answers, and those that the checks before every handler can give."""
    replies = dict(endpoint.replies)

    def add(status: int, text: str) -> None:
        replies.setdefault(status, Reply(text=text, schema=_ERROR))

    if endpoint.permission is not None:
        add(401, "no known credential")
        add(403, "a credential without that right")
    if endpoint.body is not None:
        add(413, "the body is too large")
    add(422, "malformed, or not available in this version")
    add(500, "the gateway failed")
    add(503, "the store cannot be read or written")
    return replies


def _parameter(param: Param, place: str) -> dict[str, Any]:
    return {
        "name": param.name,
        "in": place,
        "required": place == "path" or param.required,
        "description": param.text,
        "schema": param.schema,
    }


def _response(reply: Reply) -> dict[str, Any]:
    response: dict[str, Any] = {"description": reply.text}
    content: dict[str, Any] = {} if reply.schema is None else {"schema": reply.schema}
    response["content"] = {reply.media: content}
    headers = {
        name: {"description": text, "required": True, "schema": {"type": "string"}}
        for name, text in reply.headers.items()
    }
    response["headers"] = {
        "X-Request-Id": {"description": "id of the request", "required": True, "schema": {"type": "string"}},
        **headers,
    }
    return response
