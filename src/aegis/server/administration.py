"""Agents and the configuration."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from aegis.bootstrap.credentials import known_agents, seen_agents
from aegis.config.document import plain
from aegis.config.reload import PolicyHolder
from aegis.config.text import problem_of, text_of
from aegis.core.receipt import receipt_ref
from aegis.errors import ConfigError, InvalidCall, StoreConflict
from aegis.gate.control import set_agent
from aegis.server import drafting, replay
from aegis.server.admission import ADMINISTER
from aegis.server.endpoint import ApiRequest, Body, Endpoint, Param
from aegis.server.http import DEFAULT_LIMIT, MAX_REASON_CHARS, MAX_WISH_CHARS, answer, page, place_of
from aegis.server.schemas import (
    ANY_OBJECT,
    CURSOR,
    ID,
    LIMIT,
    NAME,
    TEXT,
    TIME,
    WHOLE,
    YAML,
    Schema,
    closed,
    failing,
    listing,
    named,
    nullable,
    ok,
    optional,
    ref,
)
from aegis.server.services import Services

# Agents: which are known, and the switch that stops one before its next call.


AGENT_STATE: Final[Schema] = {"type": "string", "enum": ["active", "suspended", "revoked"]}
_AGENT: Final = named("name of the agent")
_CHANGE: Final = Body(schema=ref("AgentChange"), required=False)


async def list_agents(request: ApiRequest) -> Response:
    """Show agents that hold a key, made a call, were registered, stopped or restored, by name."""
    return answer(await asyncio.to_thread(find_agents, request.services, request.query))


LIST_AGENTS: Final = Endpoint(
    method="GET",
    path="/v1/agents",
    operation="listAgents",
    tag="administration",
    summary="Agents that hold a key, made a call, were registered, stopped or restored",
    permission=ADMINISTER,
    handler=list_agents,
    query=(Param(name="state", schema=AGENT_STATE, text="in this state"), LIMIT, CURSOR),
    replies=ok("one page, by name", "Agents"),
)


async def get_agent(request: ApiRequest) -> Response:
    """Show one agent; a name that holds no key, made no call and was never registered is not found."""
    return answer(await asyncio.to_thread(find_agent, request.services, request.path["id"]))


GET_AGENT: Final = Endpoint(
    method="GET",
    path="/v1/agents/{id:path}",
    operation="getAgent",
    tag="administration",
    summary="One agent",
    permission=ADMINISTER,
    handler=get_agent,
    path_params=_AGENT,
    replies={**ok("the agent", "Agent"), **failing(s404="it holds no key, made no call and was never registered")},
)


async def register_agent(request: ApiRequest) -> Response:
    """Make an agent known; one that is known already is a conflict."""
    name: str = request.body["agent"]
    known = InvalidCall("this agent is known already", code="conflict", status=409)
    if name in await asyncio.to_thread(_seen, request.services):
        raise known
    try:
        reason = request.body.get("reason", "")
        changed = await set_state(request.services, name, "active", reason, by=request.principal.id, only_new=True)
    except StoreConflict as error:  # somebody else was first, who may have stopped it
        raise known from error
    return answer(changed, 201)


REGISTER_AGENT: Final = Endpoint(
    method="POST",
    path="/v1/agents",
    operation="registerAgent",
    tag="administration",
    summary="Make an agent known before its first call",
    permission=ADMINISTER,
    handler=register_agent,
    body=Body(schema=ref("AgentRegistration")),
    replies={**ok("registered", "AgentChanged", 201), **failing(s409="it is known already")},
)


def _switch(switch: str, state: str, text: str, done: str) -> Endpoint[ApiRequest]:
    """Describe the route that stops an agent, in every process on this store, or lets it go on."""

    async def switched(request: ApiRequest) -> Response:
        services, reason = request.services, _reason(request)
        return answer(await set_state(services, request.path["id"], state, reason, by=request.principal.id))

    return Endpoint(
        method="POST",
        path=f"/v1/agents/{{id:path}}/{switch}",
        operation=f"{switch}Agent",
        tag="administration",
        summary=text,
        permission=ADMINISTER,
        handler=switched,
        path_params=_AGENT,
        body=_CHANGE,
        replies=ok(done, "AgentChanged"),
    )


REVOKE_AGENT: Final = _switch("revoke", "revoked", "Stop an agent: its next call is refused", "stopped")
RESTORE_AGENT: Final = _switch("restore", "active", "Let a stopped agent go on", "restored")


def find_agents(services: Services, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of agents by name, by the parameters of `LIST_AGENTS`."""
    limit = query.get("limit", DEFAULT_LIMIT)
    after, state = place_of(query.get("cursor")) or "", query.get("state", "")
    known = _known(services)
    rows = [known[name] for name in sorted(known) if name > after and state in ("", known[name]["state"])]
    shown = rows[:limit]
    return page(shown, shown[-1]["agent"] if len(rows) > limit else None)


def find_agent(services: Services, name: str) -> dict[str, Any]:
    """Return one agent; raises `InvalidCall` (404) for a name that is not known."""
    known = _known(services)
    if name not in known:
        raise InvalidCall("there is no such agent", code="not_found", status=404)
    return known[name]


async def set_state(
    services: Services, name: str, state: str, reason: str, *, by: str, only_new: bool = False
) -> dict[str, Any]:
    """Stop an agent or let it act again, on record; raises `StoreConflict` for a known one with `only_new`."""
    unit = set_agent(name, state=state, reason=reason, principal=by, only_new=only_new)
    recorded = (await services.gate.arecord(unit))[0]
    return {"agent": name, "state": state, "reason": reason, "receipt": receipt_ref(recorded)}


def _reason(request: ApiRequest) -> str:
    reason: str = (request.body or {}).get("reason", "")
    return reason


def _seen(services: Services) -> dict[str, dict[str, Any]]:
    with services.store.reader() as reader:
        return seen_agents(reader)


def _known(services: Services) -> dict[str, dict[str, Any]]:
    with services.store.reader() as reader:
        return known_agents(reader)


# The configuration: shown, checked, replaced; what does not compile changes nothing.

MAX_PROBLEMS: Final = 100  # what one answer lists; the rest shows once these are repaired


def replace_config(holder: PolicyHolder, text: str, *, by: str) -> dict[str, Any]:
    """Put `text` in force; raises `ConfigError` where it does not compile, `InvalidCall` (503) where it is not kept."""
    try:
        change = holder.replace(text, by=by)
    except OSError as error:
        raise InvalidCall(
            "the configuration could not be written to its file, the old one stays in force",
            code="not_written",
            hint=os.strerror(error.errno).lower() if error.errno else "",
            status=503,
        ) from error
    return {"digest": change.after, "before": change.before}


def examine_config(holder: PolicyHolder, text: str) -> dict[str, Any]:
    """Tell whether `text` compiles, with every problem that keeps it from doing so."""
    try:
        candidate = holder.check(text)
    except ConfigError as error:
        return {"valid": False, "digest": None, "problems": [problem_of(one) for one in error.problems[:MAX_PROBLEMS]]}
    return {"valid": True, "digest": candidate.policy.digest, "problems": []}


async def get_config(request: ApiRequest) -> Response:
    """Show the configuration in force: the file laid over its profile, and the digest that receipts carry."""
    holder = request.services.policy
    return answer({"digest": holder.current.digest, "config": plain(holder.config.node)})


GET_CONFIG: Final = Endpoint(
    method="GET",
    path="/v1/config",
    operation="getConfig",
    tag="administration",
    summary="The configuration in force",
    permission=ADMINISTER,
    handler=get_config,
    replies=ok("the configuration and its digest", "Config"),
)


async def put_config(request: ApiRequest) -> Response:
    """Put a configuration in force, recorded first, and into the file where there is one."""
    text = text_of(request.text)
    return answer(await asyncio.to_thread(replace_config, request.services.policy, text, by=request.principal.id))


PUT_CONFIG: Final = Endpoint(
    method="PUT",
    path="/v1/config",
    operation="replaceConfig",
    tag="administration",
    summary="Put another configuration in force, on record",
    permission=ADMINISTER,
    handler=put_config,
    body=YAML,
    replies=ok("in force", "ConfigChanged"),
)


async def check_config(request: ApiRequest) -> Response:
    """Show whether a configuration compiles, and every problem that keeps it from doing so."""
    return answer(await asyncio.to_thread(examine_config, request.services.policy, text_of(request.text)))


CHECK_CONFIG: Final = Endpoint(
    method="POST",
    path="/v1/config:check",
    operation="checkConfig",
    tag="administration",
    summary="Whether a configuration compiles; changes nothing",
    permission=ADMINISTER,
    handler=check_config,
    body=YAML,
    replies=ok("what was found", "ConfigChecked"),
)


# Agents, configuration, health.

_REASON: Final[Schema] = {"type": "string", "maxLength": MAX_REASON_CHARS}
_ENDED: Final[Schema] = closed({"decision": TEXT, "reason": TEXT})
_PROBLEMS: Final[Schema] = {
    "type": "array",
    "items": closed({"message": TEXT, "line": WHOLE, "pointer": TEXT, "hint": TEXT}),
}
_COUNTS: Final[Schema] = {"type": "object", "additionalProperties": WHOLE}

SCHEMAS: Final[dict[str, Schema]] = {
    "Agent": closed({"agent": TEXT, "state": AGENT_STATE, "reason": TEXT, "by": TEXT}),
    "Agents": listing("Agent"),
    "AgentRegistration": closed({"agent": NAME, "reason": _REASON}, "agent"),
    "AgentChange": optional({"reason": _REASON}),
    "AgentChanged": closed({"agent": TEXT, "state": AGENT_STATE, "reason": TEXT, "receipt": ref("ReceiptRef")}),
    "Config": closed({"digest": TEXT, "config": ANY_OBJECT}),
    "ConfigChanged": closed({"digest": TEXT, "before": TEXT}),
    "ConfigChecked": closed(
        {
            "valid": {"type": "boolean"},
            "digest": nullable(TEXT),
            "problems": _PROBLEMS,
        }
    ),
    "DraftRequest": closed({"wish": {"type": "string", "minLength": 1, "maxLength": MAX_WISH_CHARS}}),
    "Drafted": closed(
        {
            "base": TEXT,
            "digest": nullable(TEXT),
            "policy": nullable(ANY_OBJECT),
            "config": nullable(TEXT),
            "valid": {"type": "boolean"},
            "explanation": TEXT,
            "problems": _PROBLEMS,
            "cases": {
                "type": "array",
                "items": closed(
                    {
                        "tool": TEXT,
                        "arguments": ANY_OBJECT,
                        "why": TEXT,
                        "expected": {"enum": ["caught", "passes"]},
                        "caught": {"type": "boolean"},
                        "holds": {"type": "boolean"},
                        "before": _ENDED,
                        "after": _ENDED,
                    }
                ),
            },
        }
    ),
    "Replay": closed(
        {
            "digest": TEXT,
            "replayed": WHOLE,
            "skipped": WHOLE,
            "before": _COUNTS,
            "after": _COUNTS,
            "changed": {
                "type": "array",
                "items": closed(
                    {
                        "receipt_id": ID,
                        "index": WHOLE,
                        "tool": TEXT,
                        "agent": TEXT,
                        "before": _ENDED,
                        "after": _ENDED,
                    }
                ),
            },
            "summary": {
                "type": "array",
                "items": closed({"tool": TEXT, "agent": TEXT, "before": _ENDED, "after": _ENDED, "calls": WHOLE}),
            },
            "span": closed(
                {"since": nullable(TIME), "until": nullable(TIME), "complete": {"type": "boolean"}},
            ),
            "next": nullable(TEXT),
        }
    ),
    "Health": closed({"status": {"const": "ok"}}),
    "SlackAnswer": closed({"status": {"const": "answered"}}),
    "Ready": closed({"status": {"const": "ready"}, "checks": {"type": "object", "additionalProperties": TEXT}}),
}


ENDPOINTS: Final = (
    LIST_AGENTS,
    REGISTER_AGENT,
    REVOKE_AGENT,
    RESTORE_AGENT,
    GET_AGENT,
    GET_CONFIG,
    PUT_CONFIG,
    CHECK_CONFIG,
    drafting.DRAFT_POLICY,
    replay.REPLAY_CONFIG,
)
