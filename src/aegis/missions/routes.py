"""Missions over HTTP: issued, delegated, stopped; and the challenge with which a session begins."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal

from starlette.responses import Response

from aegis.core.call import MAX_NAME_CHARS
from aegis.core.ports import Document
from aegis.core.principal import Principal
from aegis.core.receipt import receipt_ref
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall, StoreConflict
from aegis.missions import registry
from aegis.missions.holder import CHALLENGE_S
from aegis.missions.issuing import Issued
from aegis.missions.registry import MAX_REASON_CHARS, TooManyChallenges
from aegis.missions.status import MAX_CHARS
from aegis.server.admission import CHALLENGE, DELEGATE, ISSUE, SEE_MISSIONS
from aegis.server.endpoint import ApiRequest, Body, Endpoint, Param
from aegis.server.http import DEFAULT_LIMIT, answer, page, place_of
from aegis.server.schemas import (
    CURSOR,
    LIMIT,
    NAME,
    TEXT,
    TIME,
    Schema,
    closed,
    failing,
    listing,
    named,
    ok,
    one_of,
    optional,
    ref,
)
from aegis.server.services import Services

# Missions: issuing, delegating, stopping, and the challenge that a session answers.

TOKEN: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_CHARS, "description": "compact JWS"}
_CLAIMS: Final[Schema] = {
    "type": "object",
    "description": "the members of a mission but for `iss`, `aud`, `iat`, `jti` and `parent`, which are filled in",
}
_REASON: Final[Schema] = {"type": "string", "maxLength": MAX_REASON_CHARS}
_STATE: Final[Schema] = {"type": "string", "enum": ["active", "suspended", "revoked"]}

SCHEMAS: Final[dict[str, Schema]] = {
    "MissionIssue": one_of(
        {
            "mission": {**_CLAIMS, "description": f"{_CLAIMS['description']}; signed here"},
            "token": {**TOKEN, "description": "in place of `mission`: a compact JWS that a trusted issuer signed"},
        }
    ),
    "MissionDelegation": closed(
        {
            "request_id": {**NAME, "maxLength": MAX_NAME_CHARS, "description": "the same one finds the same mission"},
            "mission": _CLAIMS,
        }
    ),
    "MissionIssued": closed(
        {
            "mission_id": TEXT,
            "mission": TOKEN,
            "lineage": {"type": "array", "items": TEXT},
            "remarks": {"type": "array", "items": TEXT},
            "receipt": ref("ReceiptRef"),
        },
        "mission_id",
        "mission",
        "lineage",
        "remarks",
    ),
    "MissionMove": optional({"reason": _REASON}),
    "MissionMoved": closed({"mission_id": TEXT, "state": _STATE, "receipt": ref("ReceiptRef")}),
    "MissionView": closed(
        {"mission_id": TEXT, "state": _STATE, "lineage": {"type": "array", "items": TEXT}, "mission": TOKEN}
    ),
    "Missions": listing("MissionView"),
    "MissionStatus": closed({"status": TOKEN}),
    "MissionStatusTaken": closed({"receipt": ref("ReceiptRef")}),
    "Challenge": closed({"nonce": TEXT, "expires_at": TIME, "audience": TEXT}),
}


Move = Literal["revoke", "suspend", "resume"]
_STATES: Final[dict[Move, registry.State]] = {"revoke": "revoked", "suspend": "suspended", "resume": "active"}


_ID: Final = named("the mission's id")
_MISSIONS_STATE: Final = Param(
    name="state",
    schema={"type": "string", "enum": ["active", "suspended", "revoked"]},
    text="with this state",
)
_MOVED: Final = {
    **ok("moved; every call below sees it from now on", "MissionMoved"),
    **failing(s404="there is no such mission", s409="it is not in a state from which it can be moved there"),
}


async def issue_mission(request: ApiRequest) -> Response:
    """Sign and enrol a root mission, or enrol one that a trusted issuer signed."""
    body = request.body
    issued = await asyncio.to_thread(
        request.services.gate.issuing.issue, request.principal, claims=body.get("mission"), token=body.get("token")
    )
    return await _enrolled(request, issued)


ISSUE_MISSION: Final = Endpoint(
    method="POST",
    path="/v1/missions",
    operation="issueMission",
    tag="missions",
    summary="Issue a mission: sign it here, or enrol one that a trusted issuer signed",
    permission=ISSUE,
    handler=issue_mission,
    body=Body(schema=ref("MissionIssue")),
    replies={**ok("issued", "MissionIssued", 201), **failing(s409="a mission of this id is known already")},
)


async def delegate_mission(request: ApiRequest) -> Response:
    """Sign and enrol a mission that is at most its parent; the same request finds the same mission."""
    issuing = request.services.gate.issuing

    def delegate() -> Issued:
        return issuing.delegate(
            request.principal, request.path["id"], claims=request.body["mission"], request_id=request.body["request_id"]
        )

    issued = await asyncio.to_thread(delegate)
    try:
        return await _enrolled(request, issued)
    except InvalidCall as error:
        if error.status != 409:
            raise
        # The same request ran beside this one, and was first.
        return await _enrolled(request, await asyncio.to_thread(delegate))


DELEGATE_MISSION: Final = Endpoint(
    method="POST",
    path="/v1/missions/{id}/delegate",
    operation="delegateMission",
    tag="missions",
    summary="Delegate a mission to another agent, at most as far as it goes itself",
    permission=DELEGATE,
    handler=delegate_mission,
    path_params=_ID,
    body=Body(schema=ref("MissionDelegation")),
    replies={
        **ok("delegated", "MissionIssued", 201),
        **ok("this request was carried out before", "MissionIssued"),
        **failing(
            s404="there is no such mission", s409="the request id was used otherwise, or the mission is not active"
        ),
    },
)


def _move(move: Move, text: str) -> Endpoint[ApiRequest]:
    """Describe the route that moves a mission, and everything below it, into another state."""

    async def moved(request: ApiRequest) -> Response:
        return answer(await _moved(request, move))

    return Endpoint(
        method="POST",
        path=f"/v1/missions/{{id}}/{move}",
        operation=f"{move}Mission",
        tag="missions",
        summary=text,
        permission=ISSUE,
        handler=moved,
        path_params=_ID,
        body=Body(schema=ref("MissionMove"), required=False),
        replies=_MOVED,
    )


REVOKE_MISSION: Final = _move("revoke", "Stop a mission and everything below it, for good")
SUSPEND_MISSION: Final = _move("suspend", "Stop a mission and everything below it until it is resumed")
RESUME_MISSION: Final = _move("resume", "Let a suspended mission go on")


async def list_missions(request: ApiRequest) -> Response:
    """Show missions by id."""
    limit = request.query.get("limit", DEFAULT_LIMIT)
    after, state = place_of(request.query.get("cursor")) or "", request.query.get("state", "")
    rows = await asyncio.to_thread(_documents, request.services, state, after, limit)
    views = await asyncio.to_thread(lambda: [_view(request.services, row.key) for row in rows])
    return answer(page(views, rows[-1].key if len(rows) == limit else None))


LIST_MISSIONS: Final = Endpoint(
    method="GET",
    path="/v1/missions",
    operation="listMissions",
    tag="missions",
    summary="Missions by id",
    permission=SEE_MISSIONS,
    handler=list_missions,
    query=(_MISSIONS_STATE, LIMIT, CURSOR),
    replies=ok("one page", "Missions"),
)


async def get_mission(request: ApiRequest) -> Response:
    """Show one mission: its token, its standing and its lineage."""
    return answer(await asyncio.to_thread(_view, request.services, request.path["id"]))


GET_MISSION: Final = Endpoint(
    method="GET",
    path="/v1/missions/{id}",
    operation="getMission",
    tag="missions",
    summary="One mission, its standing and its lineage",
    permission=SEE_MISSIONS,
    handler=get_mission,
    path_params=_ID,
    replies={**ok("the mission", "MissionView"), **failing(s404="there is no such mission")},
)


async def publish_status(request: ApiRequest) -> Response:
    """Put an issuer's status list in force."""
    unit = await asyncio.to_thread(request.services.gate.issuing.publish, request.principal, request.body["status"])
    try:
        recorded = await request.services.gate.arecord(unit)
    except StoreConflict as error:
        raise InvalidCall(str(error), code="conflict", status=409) from error
    return answer({"receipt": receipt_ref(recorded[0])})


PUBLISH_STATUS: Final = Endpoint(
    method="POST",
    path="/v1/missions:status",
    operation="publishMissionStatus",
    tag="missions",
    summary="Put an issuer's signed status list in force",
    permission=ISSUE,
    handler=publish_status,
    body=Body(schema=ref("MissionStatus")),
    replies={**ok("in force", "MissionStatusTaken"), **failing(s409="one that is as new is in force")},
)


async def challenge_session(request: ApiRequest) -> Response:
    """Show a nonce that one session can be opened with, within a minute."""
    services = request.services
    nonce, unit = services.gate.issuing.challenge(request.principal)
    try:
        await services.gate.arecord(unit)
    except TooManyChallenges as error:
        raise error.refused() from error
    expires = rfc3339(services.clock() + CHALLENGE_S * MICROS)
    audience = services.policy.current.missions.audience
    return answer({"nonce": nonce, "expires_at": expires, "audience": audience}, 201)


CHALLENGE_SESSION: Final = Endpoint(
    method="POST",
    path="/v1/sessions:challenge",
    operation="challengeSession",
    tag="missions",
    summary="A nonce that one session can be opened with, within a minute",
    permission=CHALLENGE,
    handler=challenge_session,
    replies={**ok("the challenge", "Challenge", 201), **failing(s429="too many wait for an answer")},
)


async def _enrolled(request: ApiRequest, issued: Issued) -> Response:
    if issued.unit is None:
        return answer(issued.to_wire())
    try:
        recorded = await request.services.gate.arecord(issued.unit)
    except StoreConflict as error:
        raise InvalidCall(str(error), code="conflict", status=409) from error
    return answer({**issued.to_wire(), "receipt": receipt_ref(recorded[0])}, 201)


async def _moved(request: ApiRequest, verb: Move) -> dict[str, Any]:
    reason = (request.body or {}).get("reason", "")
    return await move_mission(request.services, request.principal, request.path["id"], verb, reason)


async def move_mission(
    services: Services, principal: Principal, mission: str, verb: Move, reason: str
) -> dict[str, Any]:
    """Suspend, resume or revoke a mission, on record; raises `InvalidCall` (409) where somebody else was first."""
    to = _STATES[verb]
    unit = await asyncio.to_thread(services.gate.issuing.move, principal, mission, to, reason)
    try:
        recorded = await services.gate.arecord(unit)
    except StoreConflict as error:
        raise InvalidCall(str(error), code="conflict", status=409) from error
    return {"mission_id": mission, "state": to, "receipt": receipt_ref(recorded[0])}


def _documents(services: Services, state: str, after: str, limit: int) -> list[Document]:
    with services.store.reader() as reader:
        return reader.documents(registry.COLLECTION, state=state, after=after, limit=limit)


def _view(services: Services, mission_id: str) -> dict[str, Any]:
    with services.store.reader() as reader:
        enrolled = registry.find(reader, mission_id)
    if enrolled is None:
        raise InvalidCall("there is no such mission", code="not_found", status=404)
    return {
        "mission_id": mission_id,
        "state": enrolled.state,
        "lineage": list(enrolled.lineage),
        "mission": enrolled.token,
    }


# Missions: who may issue, delegate and stop them, and how a session proves that it holds one.


ENDPOINTS: Final = (
    LIST_MISSIONS,
    ISSUE_MISSION,
    PUBLISH_STATUS,
    GET_MISSION,
    DELEGATE_MISSION,
    REVOKE_MISSION,
    SUSPEND_MISSION,
    RESUME_MISSION,
    CHALLENGE_SESSION,
)
