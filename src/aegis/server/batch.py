"""`POST /v1/decisions:batch`: several calls at once, a few of them in each commit and each turn of the loop."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.errors import InvalidCall
from aegis.gate.decide import prepare
from aegis.server.answers import answer
from aegis.server.endpoint import Asked
from aegis.server.turns import PER_TURN
from aegis.server.wire import DEFAULT_RETRY_AFTER_S, call_of, joined

SLICE: Final = PER_TURN  # calls that are decided together: the others of the loop come between two slices


async def decide_batch(asked: Asked) -> Response:
    """Decisions in the order of the calls; a malformed call refuses the whole batch before any is decided."""
    rows: list[Any] = asked.body if isinstance(asked.body, list) else asked.body["calls"]
    apart = asked.apart or [None] * len(rows)
    decisions: list[Decision] = []
    calls: list[ToolCall] = []
    for position, (row, arguments) in enumerate(zip(rows, apart, strict=True)):
        if position % SLICE == 0:
            await asked.services.turns.take(asked.principal.id)
        calls.append(_checked(asked, position, row, arguments))
    # A judge is told what became of the calls before.
    size = 1 if asked.services.policy.current.judges else SLICE
    for first in range(0, len(calls), size):
        await asked.services.turns.take(asked.principal.id)
        decisions += await asyncio.gather(
            *(asked.services.decide(call, principal=asked.principal) for call in calls[first : first + size])
        )
    reads_findings = "auditor" in asked.principal.roles
    wire = {"decisions": [decision.to_wire(findings=reads_findings) for decision in decisions]}
    unrecorded = [decision for decision in decisions if decision.receipt is None]
    for _ in unrecorded:
        asked.services.metrics.count_unrecorded()
    if unrecorded:
        return answer(wire, 503, {"retry-after": str(DEFAULT_RETRY_AFTER_S)})
    return answer(wire)


def _checked(asked: Asked, position: int, row: Any, arguments: bytes | None) -> ToolCall:
    try:
        call = joined(call_of(row), arguments)
        prepare(asked.principal, call)
    except InvalidCall as error:
        raise InvalidCall(
            f"call {position}: {error.message}", code=error.code, hint=error.hint, status=error.status
        ) from error
    return call
