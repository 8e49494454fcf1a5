"""The plan of a session: declared by its host, and shown with what of it is done."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import to_builtins
from starlette.responses import Response

from aegis.core.call import MAX_NAME_CHARS
from aegis.core.outcome import EFFECTS
from aegis.reasoning.declaring import plan_of
from aegis.reasoning.plan import (
    MAX_ALTERNATIVES,
    MAX_CONSTRAINTS,
    MAX_PATTERN_CHARS,
    MAX_STEPS,
    MAX_TIMES,
    to_wire,
)
from aegis.server.admission import OPEN_SESSION
from aegis.server.endpoint import ApiRequest, Body, Endpoint
from aegis.server.http import answer
from aegis.server.schemas import DIGEST, ID, TEXT, WHOLE, Schema, closed, failing, named, ok, ref

_PLAIN: Final[Schema] = {"type": ["string", "number", "boolean", "null"], "maxLength": MAX_PATTERN_CHARS}
_STEP: Final[dict[str, Schema]] = {
    "tool": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_NAME_CHARS,
        "description": "a selector: `tool` or `server/tool`, where `*` may stand",
    },
    "arguments": {
        "type": "object",
        "maxProperties": MAX_CONSTRAINTS,
        "additionalProperties": {
            "anyOf": [_PLAIN, {"type": "array", "minItems": 1, "maxItems": MAX_ALTERNATIVES, "items": _PLAIN}]
        },
        "description": "what arguments are, by name or JSON pointer: one of the values, where `*` may stand in texts",
    },
    "effects": {
        "type": "array",
        "items": {"type": "string", "enum": list(EFFECTS)},
        "maxItems": len(EFFECTS),
        "description": "what the call may do at most; anything where it is left out",
    },
    "times": {"type": "integer", "minimum": 1, "maximum": MAX_TIMES, "description": "how often; once if left out"},
}
_ORDERED: Final[Schema] = {"type": "boolean", "description": "whether each step follows those before it"}

SCHEMAS: Final[dict[str, Schema]] = {
    "PlanStep": closed(_STEP, "tool"),
    "Plan": closed(
        {
            "steps": {"type": "array", "minItems": 1, "maxItems": MAX_STEPS, "items": ref("PlanStep")},
            "ordered": _ORDERED,
        },
        "steps",
    ),
    "PlanDeclared": closed(
        {
            "session": TEXT,
            "digest": {**DIGEST, "description": "of the plan as it is kept"},
            "receipt": ref("ReceiptRef"),
            "approval": closed({"id": TEXT, "expires_at": TEXT, "url": TEXT}),
        },
        "session",
        "digest",
    ),
    "PlanStanding": closed(
        {
            "session": TEXT,
            "digest": DIGEST,
            "receipt_id": ID,
            "steps": {"type": "array", "items": closed({**_STEP, "done": WHOLE}, "tool", "times", "done")},
            "ordered": _ORDERED,
        }
    ),
}


async def declare(request: ApiRequest) -> Response:
    """Declare what one of the caller's sessions is about to do."""
    told = await request.services.gate.adeclare_plan(request.path["id"], request.body, principal=request.principal)
    value: dict[str, Any] = {"session": told.session, "digest": told.digest}
    if told.approval is not None:
        waits = told.approval
        value["approval"] = {"id": waits.id, "expires_at": waits.expires_at, "url": waits.url}
        return answer(value, 202)
    if told.receipt is not None:
        value["receipt"] = to_builtins(told.receipt)
    return answer(value, 201 if told.fresh else 200)


async def show(request: ApiRequest) -> Response:
    """Show the plan that binds one of the caller's sessions, and how often each step is done."""
    session = request.path["id"]
    book = await asyncio.to_thread(plan_of, request.services.gate.parts, request.principal, session)
    wire = to_wire(book.plan)
    steps = [{**step, "done": done} for step, done in zip(wire["steps"], book.done, strict=True)]
    value = {"session": session, "digest": book.plan.digest, "receipt_id": book.receipt, **wire, "steps": steps}
    return answer(value)


ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path="/v1/sessions/{id:path}/plan",
        operation="declarePlan",
        tag="judging",
        summary="Declare what a session is about to do; calls outside of the plan are held",
        permission=OPEN_SESSION,
        handler=declare,
        path_params=named("name of the session"),
        body=Body(schema=ref("Plan")),
        replies={
            **ok("declared", "PlanDeclared", 201),
            **ok("it is in force already", "PlanDeclared"),
            **ok("it lets more through than the plan in force, and waits for a person", "PlanDeclared", 202),
            **failing(s409="it was denied, or the session has the plan of the one that it was opened from"),
        },
    ),
    Endpoint(
        method="GET",
        path="/v1/sessions/{id:path}/plan",
        operation="showPlan",
        tag="judging",
        summary="Show the plan of a session, and what of it is done",
        permission=OPEN_SESSION,
        handler=show,
        path_params=named("name of the session"),
        replies={**ok("the plan in force", "PlanStanding"), **failing(s404="no plan was declared")},
    ),
)
