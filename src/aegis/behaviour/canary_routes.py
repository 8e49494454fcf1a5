"""Canaries over HTTP: minted, rotated, retired, and who touched one."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from aegis.behaviour.canaries import (
    CANARY_KINDS,
    MAX_NOTE_CHARS,
    HoneyToken,
    list_canaries,
    mint,
    retire,
    rotate,
    shown,
    shown_touch,
    touches,
)
from aegis.core.receipt import receipt_ref
from aegis.log.writer import Unit
from aegis.server.admission import ADMINISTER
from aegis.server.endpoint import ApiRequest, Body, Endpoint
from aegis.server.http import answer
from aegis.server.schemas import ID, NAME, TEXT, TIME, Schema, closed, failing, named, ok, ref

_CANARY: Final[dict[str, Schema]] = {
    "id": ID,
    "kind": {"type": "string", "enum": list(CANARY_KINDS)},
    "value": TEXT,
    "note": TEXT,
    "by": TEXT,
    "minted_at": TIME,
}

SCHEMAS: Final[dict[str, Schema]] = {
    "CanaryWish": closed(
        {
            "kind": {"type": "string", "enum": list(CANARY_KINDS)},
            "name": {**NAME, "description": "the name of a tool; of every other kind the value is made"},
            "note": {"type": "string", "maxLength": MAX_NOTE_CHARS},
        },
        "kind",
    ),
    "Canary": closed(_CANARY),
    "CanaryMinted": closed({**_CANARY, "receipt": ref("ReceiptRef")}),
    "Canaries": closed(
        {
            "items": {"type": "array", "items": ref("Canary")},
            "touched": {
                "type": "array",
                "items": closed(
                    {"receipt": ID, "time": TIME, "kind": TEXT, "agent": TEXT, "session": TEXT, "tool": TEXT}
                ),
            },
        }
    ),
}


async def list_all_canaries(request: ApiRequest) -> Response:
    """Show the canaries, with masked values, and the newest touches."""

    def look() -> dict[str, Any]:
        with request.services.store.reader() as reader:
            items = [shown(one) for one in list_canaries(reader)]
            return {"items": items, "touched": [shown_touch(one) for one in touches(reader)]}

    return answer(await asyncio.to_thread(look))


LIST_CANARIES: Final = Endpoint(
    method="GET",
    path="/v1/canaries",
    operation="listCanaries",
    tag="administration",
    summary="Canaries, and who touched one",
    permission=ADMINISTER,
    handler=list_all_canaries,
    replies=ok("the canaries", "Canaries"),
)


async def mint_canary(request: ApiRequest) -> Response:
    """Mint a canary; its value is shown here and never again."""
    body, services = request.body, request.services
    canary, unit = mint(
        body["kind"],
        value=body.get("name", ""),
        note=body.get("note", ""),
        by=request.principal.id,
        now=services.clock(),
    )
    recorded = await services.gate.arecord(unit)
    return answer({**shown(canary), "value": canary.value, "receipt": receipt_ref(recorded[-1])}, 201)


MINT_CANARY: Final = Endpoint(
    method="POST",
    path="/v1/canaries",
    operation="mintCanary",
    tag="administration",
    summary="Mint a canary: a key, a payee or a tool that nobody needs",
    permission=ADMINISTER,
    handler=mint_canary,
    body=Body(schema=ref("CanaryWish")),
    replies={**ok("minted; the value is shown once", "CanaryMinted", 201), **failing(s409="too many are watched")},
)


async def rotate_canary(request: ApiRequest) -> Response:
    """Give a canary another value; the old one is still watched."""
    services = request.services

    def found() -> tuple[HoneyToken, Unit]:
        with services.store.reader() as reader:
            return rotate(reader, request.path["id"], by=request.principal.id, now=services.clock())

    canary, unit = await asyncio.to_thread(found)
    recorded = await services.gate.arecord(unit)
    return answer({**shown(canary), "value": canary.value, "receipt": receipt_ref(recorded[-1])})


ROTATE_CANARY: Final = Endpoint(
    method="POST",
    path="/v1/canaries/{id}/rotate",
    operation="rotateCanary",
    tag="administration",
    summary="Give a canary another value",
    permission=ADMINISTER,
    handler=rotate_canary,
    path_params=named("the canary's id"),
    replies={**ok("rotated; the value is shown once", "CanaryMinted"), **failing(s404="there is no such canary")},
)


async def retire_canary(request: ApiRequest) -> Response:
    """Watch a canary no more."""
    recorded = await request.services.gate.arecord(retire(request.path["id"], by=request.principal.id))
    return answer({"id": request.path["id"], "receipt": receipt_ref(recorded[-1])})


RETIRE_CANARY: Final = Endpoint(
    method="POST",
    path="/v1/canaries/{id}/retire",
    operation="retireCanary",
    tag="administration",
    summary="Watch a canary no more",
    permission=ADMINISTER,
    handler=retire_canary,
    path_params=named("the canary's id"),
    replies={**ok("retired", "ContainmentReleased"), **failing(s404="there is no such canary")},
)


ENDPOINTS: Final = (LIST_CANARIES, MINT_CANARY, ROTATE_CANARY, RETIRE_CANARY)
