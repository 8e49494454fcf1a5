"""`POST /v1/config:draft`: a policy drafted from plain words; nothing is put in force."""

from __future__ import annotations

from starlette.responses import Response

from aegis.server.answers import answer
from aegis.server.drafting.draft import draft_policy
from aegis.server.endpoint import Asked


async def draft_config(asked: Asked) -> Response:
    """The draft with its test cases."""
    return answer(await draft_policy(asked.services, asked.body["wish"], by=asked.principal.id))
