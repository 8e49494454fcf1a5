"""Containment over HTTP: what is contained, its end, what conditions would have done, and the switch for everything."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from aegis.behaviour.canaries import (
    CANARY_KINDS,
    MAX_NOTE_CHARS,
    Canary,
    list_canaries,
    mint,
    retire,
    rotate,
    shown,
    shown_touch,
    touches,
)
from aegis.behaviour.containment import contained_now, kill, release
from aegis.behaviour.replaying import WouldHave, walk
from aegis.config.text import text_of
from aegis.core.behaviour import ContainmentRule
from aegis.core.ports import Entry, Reader
from aegis.core.times import rfc3339
from aegis.gate.control import Contained
from aegis.gate.repeat import load_payload
from aegis.log.writer import Unit
from aegis.server.administration import receipt_ref
from aegis.server.admission import ADMINISTER, Permission
from aegis.server.audit import moment
from aegis.server.endpoint import ApiRequest, Body, Endpoint
from aegis.server.http import MAX_REASON_CHARS, answer
from aegis.server.schemas import (
    ID,
    NAME,
    SINCE,
    TEXT,
    TIME,
    WHOLE,
    YAML,
    Schema,
    closed,
    failing,
    named,
    nullable,
    ok,
    optional,
    ref,
)
from aegis.server.services import Services

SEE: Final = Permission(roles=("auditor", "admin"), reason="what is contained is shown to auditors and administrators")
MAX_WALKED: Final = 50_000  # receipts of one walk over the log: bounds how long an answer takes
_CHANGE: Final = Body(
    schema=ref("ContainmentChange"),
    required=False,
)
_KINDS: Final[Schema] = {"type": "string", "enum": ["agent", "session", "mission", "tool", "everything"]}
_DOES: Final[Schema] = {"type": "string", "enum": ["alert", "hold", "suspend", "revoke"]}

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
    "ContainmentChange": optional({"reason": {"type": "string", "maxLength": MAX_REASON_CHARS}}),
    "Contained": closed(
        {
            "id": TEXT,
            "of": _KINDS,
            "agent": TEXT,
            "session": TEXT,
            "subject": TEXT,
            "do": _DOES,
            "since": TIME,
            "until": nullable(TIME),
            "cause": TEXT,
            "by": TEXT,
            "receipt": nullable(ID),
        }
    ),
    "ContainedList": closed({"items": {"type": "array", "items": ref("Contained")}, "next": nullable(TEXT)}),
    "ContainmentReleased": closed({"id": TEXT, "receipt": ref("ReceiptRef")}),
    "Killed": closed({"killed": {"type": "boolean"}, "reason": TEXT, "receipt": ref("ReceiptRef")}),
    "ContainmentReplay": closed(
        {
            "looked_at": WHOLE,
            "complete": {"type": "boolean"},
            "items": {
                "type": "array",
                "items": closed(
                    {
                        "time": TIME,
                        "receipt": ID,
                        "cause": TEXT,
                        "of": _KINDS,
                        "do": _DOES,
                        "agent": TEXT,
                        "session": TEXT,
                        "until": nullable(TIME),
                        "calls": WHOLE,
                        "had_run": WHOLE,
                    }
                ),
            },
        }
    ),
}


async def list_containment(request: ApiRequest) -> Response:
    """Show what is contained now, newest first."""
    return answer({"items": await asyncio.to_thread(contained_rows, request.services), "next": None})


LIST_CONTAINMENT: Final = Endpoint(
    method="GET",
    path="/v1/containment",
    operation="listContainment",
    tag="administration",
    summary="What is held, suspended or stopped by a condition, and why",
    permission=SEE,
    handler=list_containment,
    replies=ok("what is contained now", "ContainedList"),
)


async def release_contained(request: ApiRequest) -> Response:
    """End one containment; its next call is decided without it."""
    return answer(await end(request.services, request.path["id"], _reason(request), by=request.principal.id))


RELEASE_CONTAINED: Final = Endpoint(
    method="POST",
    path="/v1/containment/{id}/release",
    operation="releaseContained",
    tag="administration",
    summary="End a containment before its time",
    permission=ADMINISTER,
    handler=release_contained,
    path_params=named("the containment's id"),
    body=_CHANGE,
    replies={**ok("released", "ContainmentReleased"), **failing(s404="nothing is contained under this id")},
)


async def kill_all(request: ApiRequest) -> Response:
    """Stop every agent at once: calls, sessions, delegations and challenges."""
    return answer(await stop_all(request.services, _reason(request), by=request.principal.id))


KILL: Final = Endpoint(
    method="POST",
    path="/v1/kill",
    operation="kill",
    tag="administration",
    summary="Stop every agent at once, everywhere: the next decision of each is refused",
    permission=ADMINISTER,
    handler=kill_all,
    body=_CHANGE,
    replies=ok("stopped", "Killed"),
)


async def kill_release(request: ApiRequest) -> Response:
    """Let agents act again; what was stopped beside the switch stays stopped."""
    changed = await end(request.services, "everything", _reason(request), by=request.principal.id)
    return answer({"killed": False, "reason": _reason(request), "receipt": changed["receipt"]})


KILL_RELEASE: Final = Endpoint(
    method="POST",
    path="/v1/kill/release",
    operation="releaseKill",
    tag="administration",
    summary="Let agents act again",
    permission=ADMINISTER,
    handler=kill_release,
    body=_CHANGE,
    replies={**ok("released", "Killed"), **failing(s404="the switch is not thrown")},
)


async def replay_containment(request: ApiRequest) -> Response:
    """Show what the conditions of a configuration would have done over the newest receipts."""
    candidate = await asyncio.to_thread(request.services.policy.check, text_of(request.text))
    rules, since = candidate.policy.behaviour.containment, moment(request.query, "since") or 0
    return answer(await asyncio.to_thread(would_have, request.services, rules, since))


REPLAY_CONTAINMENT: Final = Endpoint(
    method="POST",
    path="/v1/containment:replay",
    operation="replayContainment",
    tag="administration",
    summary="What the conditions of a configuration would have done; changes nothing",
    permission=ADMINISTER,
    handler=replay_containment,
    body=YAML,
    query=(SINCE,),
    replies=ok("what would have happened", "ContainmentReplay"),
)


# Canaries: minted, rotated, retired, and who touched one.


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

    def found() -> tuple[Canary, Unit]:
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


async def stop_all(services: Services, reason: str, *, by: str) -> dict[str, Any]:
    """Stop every agent, on record."""
    recorded = await services.gate.arecord(kill(reason, principal=by, now=services.clock()))
    return {"killed": True, "reason": reason, "receipt": receipt_ref(recorded[-1])}


async def end(services: Services, key: str, reason: str, *, by: str) -> dict[str, Any]:
    """End what is contained under `key`, on record; raises `InvalidCall` (404)."""
    recorded = await services.gate.arecord(release(key, reason, principal=by))
    return {"id": key, "receipt": receipt_ref(recorded[-1])}


def contained_rows(services: Services) -> list[dict[str, Any]]:
    """Return what is contained now, as it is shown."""
    with services.store.reader() as reader:
        return [row(one) for one in contained_now(reader, services.clock())]


def row(one: Contained) -> dict[str, Any]:
    """Return one containment as it is shown."""
    return {
        "id": one.id,
        "of": one.of,
        "agent": one.agent,
        "session": one.session,
        "subject": one.subject.replace("\n", "/"),
        "do": one.does,
        "since": rfc3339(one.since),
        "until": rfc3339(one.until) if one.until else None,
        "cause": one.cause,
        "by": one.by,
        "receipt": one.receipt or None,
    }


def would_have(services: Services, rules: Sequence[ContainmentRule], since: int) -> dict[str, Any]:
    """Return what `rules` would have done over the newest receipts since a time (microseconds)."""
    parts = services.gate.parts

    def findings(reader: Reader, entry: Entry) -> Sequence[Mapping[str, Any]]:
        payload, _ = load_payload(parts, reader, entry)
        return () if payload is None else payload.get("findings", ())

    with services.store.reader() as reader:
        size = reader.head().size
        start = max(0, size - MAX_WALKED)
        walked = walk(reader, rules, findings, start=start, stop=size, since=since)
        first = reader.entry(start)
    complete = walked.complete and (start == 0 or (first is not None and first.time <= since))
    return {"looked_at": walked.looked_at, "complete": complete, "items": [_fired(one) for one in walked.fired]}


def _fired(one: WouldHave) -> dict[str, Any]:
    return {
        "time": rfc3339(one.time),
        "receipt": one.receipt,
        "cause": one.rule.words,
        "of": one.rule.of,
        "do": one.rule.does,
        "agent": one.agent,
        "session": one.session,
        "until": rfc3339(one.contained.until) if one.contained is not None and one.contained.until else None,
        "calls": one.met,
        "had_run": one.had_run,
    }


def _reason(request: ApiRequest) -> str:
    reason: str = (request.body or {}).get("reason", "")
    return reason


ENDPOINTS: Final = (
    LIST_CONTAINMENT,
    RELEASE_CONTAINED,
    KILL,
    KILL_RELEASE,
    REPLAY_CONTAINMENT,
    LIST_CANARIES,
    MINT_CANARY,
    ROTATE_CANARY,
    RETIRE_CANARY,
)
