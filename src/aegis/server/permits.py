"""`POST /v1/permits/verify`: a tool redeems the permit of a call before it runs it."""

from __future__ import annotations

from starlette.responses import Response

from aegis.server.answers import answer
from aegis.server.endpoint import Asked


async def verify_permit(asked: Asked) -> Response:
    """Redeem a permit for exactly this call, once for the whole deployment."""
    body = asked.body
    permit_id = await asked.services.gate.aredeem(
        body["permit"],
        tool=body["tool"],
        arguments=body["arguments"],
        server=body.get("server"),
        principal=asked.principal,
    )
    return answer({"valid": True, "permit_id": permit_id})
