"""Every endpoint, in the order of the reference: routing, checks and the API description read this one table."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from starlette.responses import Response

from aegis._version import __version__
from aegis.approvals import routes as approvals_routes
from aegis.approvals.slack import ANSWER_IN_SLACK
from aegis.behaviour import alert_routes, canary_routes
from aegis.behaviour import routes as behaviour_routes
from aegis.context import routes as context_routes
from aegis.errors import InvalidCall
from aegis.missions import routes as missions_routes
from aegis.proxies.models import listing
from aegis.reasoning import routes as reasoning_routes
from aegis.runs import routes as runs_routes
from aegis.server import administration, audit, decisions, deliveries, results
from aegis.server.admission import ANYBODY, AUDIT, VERIFY_PERMIT
from aegis.server.endpoint import ApiEndpoint, ApiRequest, Body, Endpoint, Param, Reply
from aegis.server.events import WATCH_EVENTS
from aegis.server.http import answer
from aegis.server.schemas import failing, ok, ref
from aegis.server.services import Services
from aegis.server.telemetry import CONTENT_TYPE, exposition
from aegis.server.validation import COMPONENTS

# `GET /openapi.json`: the description of the API, generated from the table that also serves it.

_ERROR: Final = ref("Error")


async def openapi(request: ApiRequest) -> Response:
    """Show the description as JSON."""
    return answer(description())


OPENAPI: Final = Endpoint(
    method="GET",
    path="/openapi.json",
    operation="describe",
    tag="open",
    summary="This description",
    permission=ANYBODY,
    handler=openapi,
    replies={200: Reply(text="OpenAPI 3.1", schema={"type": "object"})},
)


@lru_cache(maxsize=1)
def description() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of this version."""

    return describe(ENDPOINTS)


def describe(endpoints: Iterable[ApiEndpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of `endpoints`."""
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


def _operation(endpoint: ApiEndpoint) -> dict[str, Any]:
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


def all_replies(endpoint: ApiEndpoint) -> dict[int, Reply]:
    """Return the declared answers, and those that the checks before every handler can give."""
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


# `POST /v1/permits/verify`: a tool redeems the permit of a call before it runs it.


async def verify_permit(request: ApiRequest) -> Response:
    """Redeem a permit for exactly this call, once for the whole deployment."""
    body = request.body
    permit_id = await request.services.gate.aredeem(
        body["permit"],
        tool=body["tool"],
        arguments=body["arguments"],
        server=body.get("server"),
        principal=request.principal,
    )
    return answer({"valid": True, "permit_id": permit_id})


PERMIT_CHECK: Final = Endpoint(
    method="POST",
    path="/v1/permits/verify",
    operation="verifyPermit",
    tag="permits",
    summary="Redeem a permit for exactly this call, once",
    permission=VERIFY_PERMIT,
    handler=verify_permit,
    body=Body(schema=ref("PermitCheck")),
    replies={
        **ok("the permit covers the call, and is used up", "PermitRedeemed"),
        **failing(
            s403="another call, another signature, another audience, or a call that was only observed",
            s409="redeemed, over, or its agent was stopped",
        ),
    },
)


# `/healthz`: the process answers. `/readyz`: so do its store, its log and its policy.


async def healthz(request: ApiRequest) -> Response:
    """Show that the event loop turns."""
    return answer({"status": "ok"})


HEALTHZ: Final = Endpoint(
    method="GET",
    path="/healthz",
    operation="health",
    tag="open",
    summary="The process answers",
    permission=None,
    handler=healthz,
    replies=ok("it does", "Health"),
)


async def readyz(request: ApiRequest) -> Response:
    """Show that calls can be decided and recorded; raises `InvalidCall` (503) that says what is missing."""
    if request.services.draining.is_set():
        raise InvalidCall("the gateway goes down", code="not_ready", status=503)
    await request.services.readiness.check()
    return answer({"status": "ready", "checks": {"store": "ok", "log": "ok", "policy": "ok"}})


READYZ: Final = Endpoint(
    method="GET",
    path="/readyz",
    operation="readiness",
    tag="open",
    summary="Store, log and policy are ready for calls",
    permission=None,
    handler=readyz,
    replies={**ok("they are", "Ready"), **failing(s503="they are not")},
)


# `GET /metrics` for Prometheus.


async def metrics(request: ApiRequest) -> Response:
    """Show counters and histograms of this gateway, and the depth of the log and its queue."""
    size, epoch = await asyncio.to_thread(_head, request.services)
    gauges = {
        "aegis_log_size": ("Receipts in the log.", float(size)),
        "aegis_control_epoch": ("Changes of control data since the log began.", float(epoch)),
        "aegis_queue_depth": ("Units that wait for a commit.", float(request.services.gate.depth)),
        "aegis_processes": ("Processes that decide.", float(1 + len(request.services.deciders or ()))),
        "aegis_event_subscribers": ("Clients of the event stream.", float(request.services.feed.subscribers)),
    }
    counted = await request.services.counted()
    return Response(exposition(counted, gauges), media_type=CONTENT_TYPE)


METRICS: Final = Endpoint(
    method="GET",
    path="/metrics",
    operation="metrics",
    tag="open",
    summary="Prometheus metrics",
    permission=AUDIT,
    handler=metrics,
    replies={200: Reply(text="Prometheus text", schema={"type": "string"}, media=CONTENT_TYPE)},
)


def _head(services: Services) -> tuple[int, int]:
    with services.store.reader() as reader:
        head = reader.head()
    return head.size, head.epoch


ENDPOINTS: Final[tuple[ApiEndpoint, ...]] = (
    *decisions.ENDPOINTS,
    *results.ENDPOINTS,
    *context_routes.OPENING,
    *missions_routes.ENDPOINTS,
    *listing.ENDPOINTS,
    *runs_routes.ENDPOINTS,
    *approvals_routes.ENDPOINTS,
    ANSWER_IN_SLACK,
    WATCH_EVENTS,
    PERMIT_CHECK,
    *deliveries.ENDPOINTS,
    *audit.RECEIPTS,
    *reasoning_routes.ENDPOINTS,  # before the name of a session, which takes slashes
    *context_routes.SESSIONS,
    *audit.LOG,
    *canary_routes.ENDPOINTS,
    *alert_routes.ENDPOINTS,
    *behaviour_routes.ENDPOINTS,  # before the name of an agent, which takes slashes
    *administration.ENDPOINTS,
    audit.JWKS,
    HEALTHZ,
    READYZ,
    METRICS,
    OPENAPI,
)
