"""What the gateway signs about its own log: the summary of a session, and one receipt in one of two views."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from aegis.server.answers import answer
from aegis.server.endpoint import Asked


async def attest_session(asked: Asked) -> Response:
    """The signed summary of one session: an agent's own, or any that an auditor names."""
    gate = asked.services.gate
    token = await asyncio.to_thread(
        gate.attest_session, asked.path["id"], principal=asked.principal, whose=asked.query.get("principal")
    )
    return answer({"session": asked.path["id"], "attestation": token})


async def project_receipt(asked: Asked) -> Response:
    """One receipt as a signed projection; the audit view is for auditors."""
    gate, view = asked.services.gate, asked.query.get("view", "public")
    token = await asyncio.to_thread(gate.project, asked.path["id"], view, principal=asked.principal)
    return answer({"receipt_id": asked.path["id"], "view": view, "projection": token})
