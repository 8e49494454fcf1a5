"""`POST /v1/decisions:batch`: several calls at once, in one commit."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from aegis.core.call import ToolCall
from aegis.errors import InvalidCall
from aegis.gate.decide import prepare
from aegis.server.answers import answer
from aegis.server.endpoint import Asked
from aegis.server.wire import DEFAULT_RETRY_AFTER_S, call_of


async def decide_batch(asked: Asked) -> Response:
    """Decisions in the order of the calls; a malformed call refuses the whole batch before any is decided."""
    rows: list[Any] = asked.body if isinstance(asked.body, list) else asked.body["calls"]
    calls = [_checked(asked, position, row) for position, row in enumerate(rows)]
    decide = asked.services.decide
    if asked.services.policy.current.judges:  # a judge is told what became of the calls before
        decisions = [await decide(call, principal=asked.principal) for call in calls]
    else:
        decisions = await asyncio.gather(*(decide(call, principal=asked.principal) for call in calls))
    reads_findings = "auditor" in asked.principal.roles
    wire = {"decisions": [decision.to_wire(findings=reads_findings) for decision in decisions]}
    unrecorded = [decision for decision in decisions if decision.receipt is None]
    for _ in unrecorded:
        asked.services.metrics.count_unrecorded()
    if unrecorded:
        return answer(wire, 503, {"retry-after": str(DEFAULT_RETRY_AFTER_S)})
    return answer(wire)


def _checked(asked: Asked, position: int, row: Any) -> ToolCall:
    try:
        call = call_of(row)
        prepare(asked.principal, call)
    except InvalidCall as error:
        raise InvalidCall(
            f"call {position}: {error.message}", code=error.code, hint=error.hint, status=error.status
        ) from error
    return call
