"""Permits: what a tool asks before it runs."""

from __future__ import annotations

from typing import Final

from aegis.server.endpoint import Body, Endpoint
from aegis.server.permissions import VERIFY_PERMIT
from aegis.server.permits import verify_permit
from aegis.server.schemas.common import ref
from aegis.server.table.parts import failing, ok

ENDPOINTS: Final = (
    Endpoint(
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
    ),
)
