"""`POST /v1/results`: what a tool gave back is judged before a model sees it."""

from __future__ import annotations

from starlette.responses import Response

from aegis.core.call import ReadResult, ToolResult
from aegis.server.answers import answer
from aegis.server.endpoint import Asked
from aegis.server.wire import result_status


async def judge_result(asked: Asked) -> Response:
    """The verdict on one result, recorded and chained to its call."""
    result = ToolResult(
        decision_id=asked.body["decision_id"],
        result=asked.body["result"],
        provenance=asked.body.get("provenance"),
        further=asked.body.get("further", False),
    )
    if asked.apart:
        (data,) = asked.apart
        if data is not None:
            result = ReadResult(
                decision_id=result.decision_id,
                result=None,
                provenance=result.provenance,
                further=result.further,
                canonical=data,
            )
    await asked.services.turns.take(asked.principal.id)
    decision = await asked.services.gate.aobserve(result, principal=asked.principal)
    status, headers = result_status(decision)
    reads_findings = "auditor" in asked.principal.roles
    return answer(
        decision.to_wire(findings=reads_findings),
        status,
        {name.decode(): value.decode() for name, value in headers},
    )
