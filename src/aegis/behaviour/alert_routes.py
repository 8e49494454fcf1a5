"""Alerts over HTTP: their groups, what people say of them, and the digest of a period."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from aegis.behaviour.alerts import MAX_MUTE_S, MIN_MUTE_S, list_alerts, mute, see, unmute
from aegis.behaviour.digest import WEEK_US, digest_of
from aegis.core.receipt import receipt_ref
from aegis.gate.control import MAX_REASON_CHARS
from aegis.log.writer import Unit
from aegis.server.admission import Permission
from aegis.server.audit import moment
from aegis.server.endpoint import ApiRequest, Body, Endpoint
from aegis.server.http import answer
from aegis.server.schemas import (
    ID,
    SINCE,
    TEXT,
    TIME,
    UNTIL,
    WHOLE,
    Schema,
    closed,
    failing,
    named,
    nullable,
    ok,
    optional,
    ref,
)
from aegis.server.services import Services

SEE: Final = Permission(roles=("auditor", "approver", "admin"), reason="alerts are for those who audit, answer or run")
MUTE: Final = Permission(roles=("approver", "admin"), reason="approvers and administrators say who is told of what")
_SEVERITY: Final[Schema] = {"type": "string", "enum": ["low", "medium", "high", "critical"]}
_COUNTS: Final[Schema] = {"type": "object", "additionalProperties": WHOLE}


def _items(properties: dict[str, Schema]) -> Schema:
    return {"type": "array", "items": closed(properties)}


_CHANGES: Final[Schema] = closed(
    {"counts": _COUNTS, "items": _items({"time": TIME, "kind": TEXT, "action": TEXT, "by": TEXT, "receipt": ID})}
)

SCHEMAS: Final[dict[str, Schema]] = {
    "Alerts": closed(
        {
            "complete": {"type": "boolean", "description": "whether every alarm of the last week was looked at"},
            "items": _items(
                {
                    "id": TEXT,
                    "cause": TEXT,
                    "action": TEXT,
                    "agent": TEXT,
                    "tool": TEXT,
                    "severity": _SEVERITY,
                    "count": WHOLE,
                    "sessions": WHOLE,
                    "first": TIME,
                    "last": TIME,
                    "receipt": ID,
                    "link": TEXT,
                    "seen": nullable(closed({"at": TIME, "by": TEXT})),
                    "muted": nullable(closed({"until": TIME, "by": TEXT, "reason": TEXT})),
                }
            ),
            "next": nullable(TEXT),
        }
    ),
    "AlertMute": closed(
        {
            "seconds": {"type": "integer", "minimum": MIN_MUTE_S, "maximum": MAX_MUTE_S},
            "reason": {"type": "string", "minLength": 1, "maxLength": MAX_REASON_CHARS},
        },
        "seconds",
        "reason",
    ),
    "AlertChange": optional({}),
    "AlertChanged": closed({"id": TEXT, "receipt": ref("ReceiptRef")}),
    "Digest": closed(
        {
            "since": TIME,
            "until": TIME,
            "complete": {"type": "boolean"},
            "receipts": WHOLE,
            "policies": WHOLE,
            "decisions": _COUNTS,
            "answers": _COUNTS,
            "alerts": _items(
                {
                    "id": TEXT,
                    "cause": TEXT,
                    "severity": _SEVERITY,
                    "count": WHOLE,
                    "first": TIME,
                    "last": TIME,
                    "receipt": ID,
                }
            ),
            "changed": _CHANGES,
            "tuned": _CHANGES,
            "nearly_missed": _items(
                {
                    "agent": TEXT,
                    "tool": TEXT,
                    "risk": _SEVERITY,
                    "noted": {"type": "array", "items": TEXT},
                    "count": WHOLE,
                    "first": TIME,
                    "last": TIME,
                    "receipt": ID,
                }
            ),
        }
    ),
}


async def list_grouped(request: ApiRequest) -> Response:
    """Show the alerts of the last week by their cause, the newest first."""
    return answer(await asyncio.to_thread(alert_rows, request.services))


def alert_rows(services: Services) -> dict[str, Any]:
    """Return the alerts of the last week as they are shown."""
    with services.store.reader() as reader:
        return list_alerts(reader, services.clock(), services.policy.current.approval_rules.link)


LIST_ALERTS: Final = Endpoint(
    method="GET",
    path="/v1/alerts",
    operation="listAlerts",
    tag="administration",
    summary="The alerts of the last week, those of one cause together, with who has seen or muted them",
    permission=SEE,
    handler=list_grouped,
    replies=ok("the alerts", "Alerts"),
)


async def mute_alert(request: ApiRequest) -> Response:
    """Tell nobody of an alert for a while."""
    body, key = request.body, request.path["id"]
    now = request.services.clock()
    return await _changed(request, mute(key, int(body["seconds"]), body["reason"], by=request.principal.id, now=now))


MUTE_ALERT: Final = Endpoint(
    method="POST",
    path="/v1/alerts/{id}/mute",
    operation="muteAlert",
    tag="administration",
    summary="Tell nobody of an alert for a while; it is still recorded and listed, and what is critical is still told",
    permission=MUTE,
    handler=mute_alert,
    path_params=named("the alert's id"),
    body=Body(schema=ref("AlertMute")),
    replies={
        **ok("muted", "AlertChanged"),
        **failing(s404="there is no such alert", s409="what is critical is always told"),
    },
)


async def unmute_alert(request: ApiRequest) -> Response:
    """Take a mute back."""
    unit = unmute(request.path["id"], by=request.principal.id, now=request.services.clock())
    return await _changed(request, unit)


UNMUTE_ALERT: Final = Endpoint(
    method="POST",
    path="/v1/alerts/{id}/unmute",
    operation="unmuteAlert",
    tag="administration",
    summary="Take a mute back before its end",
    permission=MUTE,
    handler=unmute_alert,
    path_params=named("the alert's id"),
    body=Body(schema=ref("AlertChange"), required=False),
    replies={**ok("told again", "AlertChanged"), **failing(s404="this alert is not muted")},
)


async def see_alert(request: ApiRequest) -> Response:
    """Say that somebody has looked at an alert."""
    unit = see(request.path["id"], by=request.principal.id, now=request.services.clock())
    return await _changed(request, unit)


SEE_ALERT: Final = Endpoint(
    method="POST",
    path="/v1/alerts/{id}/seen",
    operation="seeAlert",
    tag="administration",
    summary="Say that somebody has looked at an alert, so that it is not passed on to the second address",
    permission=MUTE,
    handler=see_alert,
    path_params=named("the alert's id"),
    body=Body(schema=ref("AlertChange"), required=False),
    replies={**ok("seen", "AlertChanged"), **failing(s404="there is no such alert")},
)


async def show_digest(request: ApiRequest) -> Response:
    """Show the digest of a period, of the last seven days where none is named."""
    services = request.services
    until = moment(request.query, "until")
    until = services.clock() if until is None else until
    since = moment(request.query, "since")

    def look() -> dict[str, Any]:
        with services.store.reader() as reader:
            return digest_of(reader, since=max(0, until - WEEK_US) if since is None else since, until=until)

    return answer(await asyncio.to_thread(look))


DIGEST: Final = Endpoint(
    method="GET",
    path="/v1/alerts/digest",
    operation="alertDigest",
    tag="administration",
    summary="What was told, changed, tuned and nearly missed within a time, the last seven days by default",
    permission=SEE,
    handler=show_digest,
    query=(SINCE, UNTIL),
    replies=ok("the digest", "Digest"),
)


async def _changed(request: ApiRequest, unit: Unit) -> Response:
    recorded = await request.services.gate.arecord(unit)
    return answer({"id": request.path["id"], "receipt": receipt_ref(recorded[-1])})


ENDPOINTS: Final = (LIST_ALERTS, DIGEST, MUTE_ALERT, UNMUTE_ALERT, SEE_ALERT)
