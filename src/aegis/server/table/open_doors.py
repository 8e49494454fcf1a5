"""Health, metrics, keys, and the description of this API."""

from __future__ import annotations

from typing import Final

from aegis.server.endpoint import Endpoint, Reply
from aegis.server.health import healthz, readyz
from aegis.server.log import jwks
from aegis.server.metrics import CONTENT_TYPE
from aegis.server.openapi import openapi
from aegis.server.permissions import ANYBODY, AUDIT
from aegis.server.table.parts import failing, ok
from aegis.server.watching import metrics

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/.well-known/jwks.json",
        operation="getJwks",
        tag="open",
        summary="The public keys of the deployment (RFC 7517)",
        permission=ANYBODY,
        handler=jwks,
        replies=ok("the keys", "Jwks"),
    ),
    Endpoint(
        method="GET",
        path="/healthz",
        operation="health",
        tag="open",
        summary="The process answers",
        handler=healthz,
        replies=ok("it does", "Health"),
    ),
    Endpoint(
        method="GET",
        path="/readyz",
        operation="readiness",
        tag="open",
        summary="Store, log and policy are ready for calls",
        handler=readyz,
        replies={**ok("they are", "Ready"), **failing(s503="they are not")},
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        operation="metrics",
        tag="open",
        summary="Prometheus metrics",
        permission=AUDIT,
        handler=metrics,
        replies={200: Reply(text="Prometheus text", schema={"type": "string"}, media=CONTENT_TYPE)},
    ),
    Endpoint(
        method="GET",
        path="/openapi.json",
        operation="describe",
        tag="open",
        summary="This description",
        permission=ANYBODY,
        handler=openapi,
        replies={200: Reply(text="OpenAPI 3.1", schema={"type": "object"})},
    ),
)
