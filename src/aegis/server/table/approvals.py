"""Held calls, and the live feed that tells of them."""

from __future__ import annotations

from typing import Final

from aegis.server.approvals import get_approval, list_approvals, list_grants, resolve_approval, revoke_grant
from aegis.server.endpoint import Body, Endpoint, Param, Reply
from aegis.server.events import events
from aegis.server.limits import MAX_WAIT_S
from aegis.server.permissions import RESOLVE, SEE_APPROVALS, SEE_GRANTS, WATCH
from aegis.server.schemas.approval import STATES
from aegis.server.schemas.common import ref
from aegis.server.table.parts import CURSOR, LIMIT, exact, failing, index, named, ok

_ID: Final = named("id of the approval")
_STATE: Final = Param(
    name="state",
    schema={"type": "string", "enum": [*STATES, "all"], "default": "pending"},
    text="in this state",
)

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/v1/approvals",
        operation="listApprovals",
        tag="approvals",
        summary="The queue of held calls; an agent sees the state of its own",
        permission=SEE_APPROVALS,
        handler=list_approvals,
        query=(_STATE, *exact("agent", "session", "tool"), LIMIT, CURSOR),
        replies=ok("one page, by id", "Approvals"),
    ),
    Endpoint(
        method="GET",
        path="/v1/approvals/{id}",
        operation="getApproval",
        tag="approvals",
        summary="One held call; with `wait`, as soon as it is answered",
        permission=SEE_APPROVALS,
        handler=get_approval,
        path_params=_ID,
        query=(
            Param(
                name="wait",
                schema={"type": "integer", "minimum": 0, "maximum": MAX_WAIT_S, "default": 0},
                text="seconds to wait for an answer",
            ),
        ),
        waits=True,
        replies={
            **ok("the approval", "Approval"),
            **failing(s404="there is none that this credential may see", s429="too many requests of this key wait"),
        },
    ),
    Endpoint(
        method="POST",
        path="/v1/approvals/{id}",
        operation="resolveApproval",
        tag="approvals",
        summary="Approve or deny a held call, once",
        permission=RESOLVE,
        handler=resolve_approval,
        path_params=_ID,
        body=Body(schema=ref("Resolution")),
        replies={
            **ok("answered", "Approval"),
            **failing(
                s404="there is none",
                s409="answered or expired already, or not what was shown",
                s429="this person approved as many calls as one may in an hour",
            ),
        },
    ),
    Endpoint(
        method="GET",
        path="/v1/grants",
        operation="listGrants",
        tag="approvals",
        summary="Grants: calls that people approved for the rest of a session",
        permission=SEE_GRANTS,
        handler=list_grants,
        query=(LIMIT, CURSOR),
        replies=ok("one page, by id", "Grants"),
    ),
    Endpoint(
        method="POST",
        path="/v1/grants/{id}/revoke",
        operation="revokeGrant",
        tag="approvals",
        summary="Take a grant back",
        permission=SEE_GRANTS,
        handler=revoke_grant,
        path_params=named("id of the grant"),
        replies={**ok("revoked", "Grant"), **failing(s404="there is none", s409="revoked already")},
    ),
    Endpoint(
        method="GET",
        path="/v1/events",
        operation="watchEvents",
        tag="approvals",
        summary="Decisions, approvals, alerts, configuration and agents as they are recorded",
        permission=WATCH,
        handler=events,
        query=(index("after", "first everything recorded after this log index; `Last-Event-ID` says the same"),),
        replies={
            200: Reply(text="server-sent events; the id is the log index", media="text/event-stream"),
            **failing(s429="too many listen already, or too many requests of this key wait"),
        },
    ),
)
