"""Containment over HTTP: what is contained, its end, what conditions would have done, and the switch for everything."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from starlette.responses import Response

from aegis.behaviour.baseline import LOOKED_AT, Baseline, baseline
from aegis.behaviour.budgets import used_of
from aegis.behaviour.cascade_store import cascade_of, shown_cascade, shown_step
from aegis.behaviour.cascades import FlowSource, steps_of, walk_flows
from aegis.behaviour.containment import contain_sessions, contained_now, kill, release
from aegis.behaviour.replaying import nearest, would_have
from aegis.behaviour.trust import trust_in
from aegis.config.text import text_of
from aegis.core.call import check_name
from aegis.core.ports import Search
from aegis.core.receipt import receipt_ref
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall
from aegis.gate.control import Contained, Containing, read_control, session_subject
from aegis.gate.parts import Parts
from aegis.log.writer import Unit
from aegis.server.admission import ADMINISTER, AUDIT, Permission
from aegis.server.audit import moment
from aegis.server.endpoint import ApiRequest, Body, Endpoint
from aegis.server.http import MAX_REASON_CHARS, answer
from aegis.server.schemas import (
    ID,
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
DOWNSTREAM_US: Final = 86_400 * MICROS  # how long sessions that were reached are held or suspended
_CHANGE: Final = Body(
    schema=ref("ContainmentChange"),
    required=False,
)
_KINDS: Final[Schema] = {"type": "string", "enum": ["agent", "session", "mission", "tool", "everything"]}
_DOES: Final[Schema] = {"type": "string", "enum": ["alert", "hold", "suspend", "revoke"]}

_NUMBER: Final[Schema] = {"type": "number"}
_COUNTS: Final[Schema] = {"type": "object", "additionalProperties": WHOLE}
_TEXTS: Final[Schema] = {"type": "array", "items": TEXT}


def _items(properties: dict[str, Schema]) -> Schema:
    return {"type": "array", "items": closed(properties)}


SCHEMAS: Final[dict[str, Schema]] = {
    "Behaviour": closed(
        {
            "agent": TEXT,
            "learned": WHOLE,
            "baseline": nullable(
                closed(
                    {
                        "calls": WHOLE,
                        "since": TIME,
                        "refused_percent": _NUMBER,
                        "calls_in_an_hour": _NUMBER,
                        "calls_in_a_busy_hour": WHOLE,
                        "hours": {"type": "array", "items": WHOLE},
                        "tools": _items({"tool": TEXT, "calls": WHOLE, "percent": _NUMBER, "refused_percent": _NUMBER}),
                    }
                )
            ),
            "today": _TEXTS,
            "score": nullable(
                closed({"bits": _NUMBER, "limit": _NUMBER, "unusual": {"type": "boolean"}, "reasons": _TEXTS})
            ),
            "trust": closed(
                {
                    "score": WHOLE,
                    "good": _NUMBER,
                    "bad": _NUMBER,
                    "days": _items({"day": {"type": "string", "format": "date"}, "score": WHOLE}),
                }
            ),
            "contained": {"type": "boolean"},
            "containment": _items(
                {"cause": TEXT, "of": _KINDS, "subject": TEXT, "do": _DOES, "counted": _COUNTS, "needed": _COUNTS}
            ),
            "budgets": _items(
                {
                    "within_s": WHOLE,
                    "used": _COUNTS,
                    "ceilings": _COUNTS,
                    "more": WHOLE,
                    "refused": {"type": "boolean"},
                }
            ),
        }
    ),
    "Downstream": closed(
        {
            "followed": {
                "type": "boolean",
                "description": "whether it is followed as it goes on",
            },
            "complete": {"type": "boolean"},
            "items": _items(
                {
                    "principal": TEXT,
                    "session": TEXT,
                    "agent": TEXT,
                    "do": {"type": "string", "enum": ["none", "mark", "hold", "suspend", "released"]},
                    "since": nullable(TIME),
                    "way": _items({"from": TEXT, "agent": TEXT, "by": TEXT, "receipt": ID}),
                }
            ),
        }
    ),
    "DownstreamChange": optional(
        {
            "do": {"type": "string", "enum": ["hold", "suspend"]},
            "reason": {"type": "string", "maxLength": MAX_REASON_CHARS},
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
            "behind": nullable({**TEXT, "description": "the containment that reached it, and with which it ends"}),
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
    """Show what the conditions of a configuration, or those in force, would have done over the newest receipts."""
    holder, since = request.services.policy, moment(request.query, "since") or 0
    policy = holder.current
    if request.text:
        policy = (await asyncio.to_thread(holder.check, text_of(request.text))).policy
    return answer(await asyncio.to_thread(would_have, request.services.gate.parts, policy.behaviour.containment, since))


REPLAY_CONTAINMENT: Final = Endpoint(
    method="POST",
    path="/v1/containment:replay",
    operation="replayContainment",
    tag="administration",
    summary="What the conditions of a configuration (none: those in force) would have done; changes nothing",
    permission=ADMINISTER,
    handler=replay_containment,
    body=replace(YAML, required=False),
    query=(SINCE,),
    replies=ok("what would have happened", "ContainmentReplay"),
)


# How far what is contained got.


async def list_downstream(request: ApiRequest) -> Response:
    """List the sessions that what was written by something contained reached, each with its way."""
    return answer(await asyncio.to_thread(behind, request.services.gate.parts, request.path["id"]))


DOWNSTREAM: Final = Endpoint(
    method="GET",
    path="/v1/containment/{id}/downstream",
    operation="listDownstream",
    tag="administration",
    summary="The sessions that were reached by what a contained agent or session wrote, each with the way",
    permission=SEE,
    handler=list_downstream,
    path_params=named("the containment's id"),
    replies={**ok("reached", "Downstream"), **failing(s404="nothing is contained under this id")},
)


async def contain_downstream(request: ApiRequest) -> Response:
    """Hold or suspend the sessions that were reached, on record, with the containment as their cause."""
    body, services, key = request.body or {}, request.services, request.path["id"]
    found = await asyncio.to_thread(behind, services.gate.parts, key)
    does, now = body.get("do", "hold"), services.clock()
    await services.gate.arecord(
        contain_behind(found, key, does, body.get("reason", ""), by=request.principal.id, now=now)
    )
    return answer(found)


def contain_behind(found: Mapping[str, Any], key: str, does: Containing, reason: str, *, by: str, now: int) -> Unit:
    """The unit that contains for a day the sessions that `behind` found, until the containment `key` ends."""
    subjects = [session_subject(one["principal"], one["session"]) for one in found["items"]]
    why = reason or f"behind {key}"
    return contain_sessions(subjects, does, why, principal=by, until=now + DOWNSTREAM_US, now=now, behind=key)


CONTAIN_DOWNSTREAM: Final = Endpoint(
    method="POST",
    path="/v1/containment/{id}/downstream",
    operation="containDownstream",
    tag="administration",
    summary="Hold or suspend for a day the sessions that were reached by what a contained agent or session wrote",
    permission=ADMINISTER,
    handler=contain_downstream,
    path_params=named("the containment's id"),
    body=Body(schema=ref("DownstreamChange"), required=False),
    replies={**ok("contained", "Downstream"), **failing(s404="nothing is contained under this id")},
)


def behind(parts: Parts, key: str) -> dict[str, Any]:
    """Return the sessions behind what is contained under `key`, as they are followed, or walked where they are not.

    Raises `InvalidCall` (404).
    """
    with parts.store.reader() as reader:
        followed = cascade_of(reader, key)
        if followed is not None:
            return {"followed": True, **shown_cascade(parts, reader, followed)}
        one = next((one for one in contained_now(reader, parts.clock()) if one.id == key), None)
        if one is None:
            raise InvalidCall("nothing is contained under this id", code="not_found", status=404)
        size = reader.head().size
        start = max(0, size - MAX_WALKED)
        reached = walk_flows(steps_of(parts, reader, start, size), FlowSource(one.of, one.subject))
    items = [{**shown_step(step, reached), "do": "none", "since": None} for step in reached.values()]
    return {"followed": False, "complete": start == 0, "items": items}


# What an agent usually does, and what of it is not.


async def agent_behaviour(request: ApiRequest) -> Response:
    """Show what is usual of one agent, how far its last call was from that, its trust, and what is counted of it."""
    check_name("agent", request.path["id"])
    return answer(await asyncio.to_thread(behaviour_of, request.services, request.path["id"]))


AGENT_BEHAVIOUR: Final = Endpoint(
    method="GET",
    path="/v1/agents/{id:path}/behaviour",
    operation="agentBehaviour",
    tag="administration",
    summary="What an agent usually does, today against it, its trust, and what containment counts of it",
    permission=AUDIT,
    handler=agent_behaviour,
    path_params=named("name of the agent"),
    replies=ok("its behaviour", "Behaviour"),
)


def behaviour_of(services: Services, agent: str) -> dict[str, Any]:
    """Return what is known of the behaviour of one agent."""
    now, policy = services.clock(), services.policy.current
    with services.store.reader() as reader:
        newest = reader.search(Search(kind="decision", agent=agent, limit=LOOKED_AT))
        near = nearest(reader, policy.behaviour.containment, agent, newest, now)
        inside = read_control(reader, services.clock)
        budgets = used_of(reader, policy.behaviour.budgets, agent, now)
        trust = trust_in(reader, agent)
    usual = baseline(newest, now)
    model, last = services.gate.usual.last(agent)
    return {
        "agent": agent,
        "learned": model.learned,
        "baseline": None if usual is None else _baseline(usual),
        "today": [] if usual is None else list(usual.odd),
        "score": None
        if last is None
        else {
            "bits": round(last.bits, 1),
            "limit": round(last.limit, 1),
            "unusual": last.is_unusual and model.learned >= policy.behaviour.baseline.after,
            "reasons": list(last.reasons),
        },
        "trust": {
            "score": trust.score,
            "good": trust.good,
            "bad": trust.bad,
            "days": [{"day": day, "score": score} for day, score in trust.days],
        },
        "contained": inside.stops(agent),
        "containment": near,
        "budgets": budgets,
    }


def _baseline(usual: Baseline) -> dict[str, Any]:
    return {
        "calls": usual.calls,
        "since": usual.since,
        "refused_percent": usual.refused,
        "calls_in_an_hour": usual.an_hour,
        "calls_in_a_busy_hour": usual.a_busy_hour,
        "hours": list(usual.hours),
        "tools": [
            {"tool": one.tool, "calls": one.calls, "percent": one.share, "refused_percent": one.refused}
            for one in usual.tools
        ],
    }


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
        "subject": one.subject.replace("\n", "/").removeprefix("/"),
        "do": one.does,
        "since": rfc3339(one.since),
        "until": rfc3339(one.until) if one.until else None,
        "cause": one.cause,
        "by": one.by,
        "receipt": one.receipt or None,
        "behind": one.behind or None,
    }


def one_contained(services: Services, key: str) -> dict[str, Any]:
    """Return one containment with what it reached, as it is shown; raises `InvalidCall` (404)."""
    found = behind(services.gate.parts, key)
    with services.store.reader() as reader:
        one = next((one for one in contained_now(reader, services.clock()) if one.id == key), None)
        followed = cascade_of(reader, key)
    if one is None and followed is not None:  # an agent that was stopped
        one = Contained(
            of=followed.of, subject=followed.subject, does="revoke", since=followed.since, cause=followed.cause,
            receipt=followed.receipt, agent=followed.agent,
        )  # fmt: skip
    if one is None:
        raise InvalidCall("nothing is contained under this id", code="not_found", status=404)
    return {**row(one), **found}


def _reason(request: ApiRequest) -> str:
    reason: str = (request.body or {}).get("reason", "")
    return reason


ENDPOINTS: Final = (
    AGENT_BEHAVIOUR,
    LIST_CONTAINMENT,
    DOWNSTREAM,
    CONTAIN_DOWNSTREAM,
    RELEASE_CONTAINED,
    KILL,
    KILL_RELEASE,
    REPLAY_CONTAINMENT,
)
