"""Missions over HTTP: issued, delegated, stopped; and the challenge with which a session begins."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from aegis.core.ports import Document
from aegis.core.receipt import Recorded
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.issuing import Issued
from aegis.missions import registry
from aegis.missions.possession import CHALLENGE_S
from aegis.missions.sessions import TooManyChallenges
from aegis.server.answers import answer
from aegis.server.endpoint import Asked
from aegis.server.paging import DEFAULT_LIMIT, page, place_of
from aegis.server.services import Services

_STATES: Final[dict[str, registry.State]] = {"revoke": "revoked", "suspend": "suspended", "resume": "active"}


async def issue_mission(asked: Asked) -> Response:
    """Sign and enrol a root mission, or enrol one that a trusted issuer signed."""
    body = asked.body
    issued = await asyncio.to_thread(
        asked.services.gate.issuing.issue, asked.principal, claims=body.get("mission"), token=body.get("token")
    )
    return await _enrolled(asked, issued)


async def delegate_mission(asked: Asked) -> Response:
    """Sign and enrol a mission that is at most its parent; the same request finds the same mission."""
    issuing = asked.services.gate.issuing

    def delegate() -> Issued:
        return issuing.delegate(
            asked.principal, asked.path["id"], claims=asked.body["mission"], request_id=asked.body["request_id"]
        )

    issued = await asyncio.to_thread(delegate)
    try:
        return await _enrolled(asked, issued)
    except InvalidCall as error:
        if error.status != 409:
            raise
        # The same request ran beside this one, and was first.
        return await _enrolled(asked, await asyncio.to_thread(delegate))


async def revoke_mission(asked: Asked) -> Response:
    """Stop a mission and everything below it, for good."""
    return await _move(asked, "revoke")


async def suspend_mission(asked: Asked) -> Response:
    """Stop a mission and everything below it until it is resumed."""
    return await _move(asked, "suspend")


async def resume_mission(asked: Asked) -> Response:
    """Let a suspended mission go on."""
    return await _move(asked, "resume")


async def list_missions(asked: Asked) -> Response:
    """Missions by id."""
    limit = asked.query.get("limit", DEFAULT_LIMIT)
    after, state = place_of(asked.query.get("cursor")) or "", asked.query.get("state", "")
    rows = await asyncio.to_thread(_documents, asked.services, state, after, limit)
    views = await asyncio.to_thread(lambda: [_view(asked.services, row.key) for row in rows])
    return answer(page(views, rows[-1].key if len(rows) == limit else None))


async def get_mission(asked: Asked) -> Response:
    """One mission: its token, its standing and its lineage."""
    return answer(await asyncio.to_thread(_view, asked.services, asked.path["id"]))


async def publish_status(asked: Asked) -> Response:
    """Put an issuer's status list in force."""
    unit = await asyncio.to_thread(asked.services.gate.issuing.publish, asked.principal, asked.body["status"])
    try:
        recorded = await asked.services.gate.arecord(unit)
    except StoreConflict as error:
        raise InvalidCall(str(error), code="conflict", status=409) from error
    return answer({"receipt": _ref(recorded[0])})


async def challenge_session(asked: Asked) -> Response:
    """A nonce that one session can be opened with, within a minute."""
    services = asked.services
    nonce, unit = services.gate.issuing.challenge(asked.principal)
    try:
        await services.gate.arecord(unit)
    except TooManyChallenges as error:
        raise error.refused() from error
    expires = rfc3339(services.clock() + CHALLENGE_S * MICROS)
    audience = services.policy.current.missions.audience
    return answer({"nonce": nonce, "expires_at": expires, "audience": audience}, 201)


async def _enrolled(asked: Asked, issued: Issued) -> Response:
    if issued.unit is None:
        return answer(issued.to_wire())
    try:
        recorded = await asked.services.gate.arecord(issued.unit)
    except StoreConflict as error:
        raise InvalidCall(str(error), code="conflict", status=409) from error
    return answer({**issued.to_wire(), "receipt": _ref(recorded[0])}, 201)


async def _move(asked: Asked, verb: str) -> Response:
    mission, to = asked.path["id"], _STATES[verb]
    reason = (asked.body or {}).get("reason", "")
    unit = await asyncio.to_thread(asked.services.gate.issuing.move, asked.principal, mission, to, reason)
    try:
        recorded = await asked.services.gate.arecord(unit)
    except StoreConflict as error:
        raise InvalidCall(str(error), code="conflict", status=409) from error
    return answer({"mission_id": mission, "state": to, "receipt": _ref(recorded[0])})


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


def _ref(recorded: Recorded) -> dict[str, Any]:
    return {"id": recorded.receipt_id, "index": recorded.index, "leaf_hash": recorded.leaf_hash.hex()}
