"""Agents and the configuration."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

from starlette.responses import Response

from aegis.bootstrap.agents import known_agents, seen_agents
from aegis.config.document import plain
from aegis.config.text import problem_of, text_of
from aegis.core.receipt import Recorded
from aegis.errors import ConfigError, InvalidCall, StoreConflict
from aegis.gate.control import set_agent
from aegis.server.drafting import draft_config
from aegis.server.endpoint import Asked, Body, Endpoint, Param
from aegis.server.http import DEFAULT_LIMIT, MAX_REASON_CHARS, MAX_REPLAYED, MAX_WISH_CHARS, answer, page, place_of
from aegis.server.permissions import ADMINISTER
from aegis.server.replay import DEFAULT_CALLS, replay_config
from aegis.server.schemas.common import (
    ANY_OBJECT,
    ID,
    NAME,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    closed,
    listing,
    nullable,
    optional,
    ref,
)
from aegis.server.schemas.parts import CURSOR, LIMIT, SINCE, UNTIL, exact, failing, named, ok
from aegis.server.services import Services

# Agents: which are known, and the switch that stops one before its next call.


async def list_agents(asked: Asked) -> Response:
    """Agents that hold a key, made a call, were registered, stopped or restored, by name."""
    limit = asked.query.get("limit", DEFAULT_LIMIT)
    after, state = place_of(asked.query.get("cursor")) or "", asked.query.get("state", "")
    known = await asyncio.to_thread(_known, asked.services)
    rows = [known[name] for name in sorted(known) if name > after and state in ("", known[name]["state"])]
    shown = rows[:limit]
    return answer(page(shown, shown[-1]["agent"] if len(rows) > limit else None))


async def get_agent(asked: Asked) -> Response:
    """One agent; a name that holds no key, made no call and was never registered is not found."""
    known = await asyncio.to_thread(_known, asked.services)
    if asked.path["id"] not in known:
        raise InvalidCall("there is no such agent", code="not_found", status=404)
    return answer(known[asked.path["id"]])


async def register_agent(asked: Asked) -> Response:
    """Make an agent known; one that is known already is a conflict."""
    name: str = asked.body["agent"]
    known = InvalidCall("this agent is known already", code="conflict", status=409)
    if name in await asyncio.to_thread(_seen, asked.services):
        raise known
    try:
        return await _set(asked, name, "active", asked.body.get("reason", ""), status=201, only_new=True)
    except StoreConflict as error:  # somebody else was first, who may have stopped it
        raise known from error


async def revoke_agent(asked: Asked) -> Response:
    """Stop an agent: its next call is refused, in every process on this store."""
    return await _set(asked, asked.path["id"], "revoked", _reason(asked))


async def restore_agent(asked: Asked) -> Response:
    """Let a stopped agent go on."""
    return await _set(asked, asked.path["id"], "active", _reason(asked))


async def _set(
    asked: Asked, name: str, state: str, reason: str, *, status: int = 200, only_new: bool = False
) -> Response:
    unit = set_agent(name, state=state, reason=reason, principal=asked.principal.id, only_new=only_new)
    recorded = (await asked.services.gate.arecord(unit))[0]
    return answer({"agent": name, "state": state, "reason": reason, "receipt": receipt_ref(recorded)}, status)


def receipt_ref(recorded: Recorded) -> dict[str, Any]:
    """Where the log keeps what was just recorded."""
    return {"id": recorded.receipt_id, "index": recorded.index, "leaf_hash": recorded.leaf_hash.hex()}


def _reason(asked: Asked) -> str:
    reason: str = (asked.body or {}).get("reason", "")
    return reason


def _seen(services: Services) -> dict[str, dict[str, Any]]:
    with services.store.reader() as reader:
        return seen_agents(reader)


def _known(services: Services) -> dict[str, dict[str, Any]]:
    with services.store.reader() as reader:
        return known_agents(reader)


# The configuration: shown, checked, replaced; what does not compile changes nothing.

MAX_PROBLEMS: Final = 100  # what one answer lists; the rest shows once these are repaired


async def get_config(asked: Asked) -> Response:
    """The configuration in force: the file laid over its profile, and the digest that receipts carry."""
    holder = asked.services.policy
    return answer({"digest": holder.current.digest, "config": plain(holder.config.node)})


async def put_config(asked: Asked) -> Response:
    """Put a configuration in force, recorded first, and into the file where there is one."""
    text, holder = text_of(asked.text), asked.services.policy
    try:
        change = await asyncio.to_thread(holder.replace, text, by=asked.principal.id)
    except OSError as error:
        raise InvalidCall(
            "the configuration could not be written to its file, the old one stays in force",
            code="not_written",
            hint=os.strerror(error.errno).lower() if error.errno else "",
            status=503,
        ) from error
    return answer({"digest": change.after, "before": change.before})


async def check_config(asked: Asked) -> Response:
    """Whether a configuration compiles, and every problem that keeps it from doing so."""
    try:
        candidate = await asyncio.to_thread(asked.services.policy.check, text_of(asked.text))
    except ConfigError as error:
        return answer(
            {"valid": False, "digest": None, "problems": [problem_of(one) for one in error.problems[:MAX_PROBLEMS]]}
        )
    return answer({"valid": True, "digest": candidate.policy.digest, "problems": []})


# Agents, configuration, health.

AGENT_STATE: Final[Schema] = {"type": "string", "enum": ["active", "revoked"]}
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
    "Ready": closed({"status": {"const": "ready"}, "checks": {"type": "object", "additionalProperties": TEXT}}),
}


_AGENT: Final = named("name of the agent")
_CHANGE: Final = Body(schema=ref("AgentChange"), required=False)
_YAML: Final = Body(schema={"type": "object", "description": "`aegis.yaml`, as text"}, media="application/yaml")

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/v1/agents",
        operation="listAgents",
        tag="administration",
        summary="Agents that hold a key, made a call, were registered, stopped or restored",
        permission=ADMINISTER,
        handler=list_agents,
        query=(Param(name="state", schema=AGENT_STATE, text="in this state"), LIMIT, CURSOR),
        replies=ok("one page, by name", "Agents"),
    ),
    Endpoint(
        method="POST",
        path="/v1/agents",
        operation="registerAgent",
        tag="administration",
        summary="Make an agent known before its first call",
        permission=ADMINISTER,
        handler=register_agent,
        body=Body(schema=ref("AgentRegistration")),
        replies={**ok("registered", "AgentChanged", 201), **failing(s409="it is known already")},
    ),
    Endpoint(
        method="POST",
        path="/v1/agents/{id:path}/revoke",
        operation="revokeAgent",
        tag="administration",
        summary="Stop an agent: its next call is refused",
        permission=ADMINISTER,
        handler=revoke_agent,
        path_params=_AGENT,
        body=_CHANGE,
        replies=ok("stopped", "AgentChanged"),
    ),
    Endpoint(
        method="POST",
        path="/v1/agents/{id:path}/restore",
        operation="restoreAgent",
        tag="administration",
        summary="Let a stopped agent go on",
        permission=ADMINISTER,
        handler=restore_agent,
        path_params=_AGENT,
        body=_CHANGE,
        replies=ok("restored", "AgentChanged"),
    ),
    Endpoint(
        method="GET",
        path="/v1/agents/{id:path}",
        operation="getAgent",
        tag="administration",
        summary="One agent",
        permission=ADMINISTER,
        handler=get_agent,
        path_params=_AGENT,
        replies={**ok("the agent", "Agent"), **failing(s404="it holds no key, made no call and was never registered")},
    ),
    Endpoint(
        method="GET",
        path="/v1/config",
        operation="getConfig",
        tag="administration",
        summary="The configuration in force",
        permission=ADMINISTER,
        handler=get_config,
        replies=ok("the configuration and its digest", "Config"),
    ),
    Endpoint(
        method="PUT",
        path="/v1/config",
        operation="replaceConfig",
        tag="administration",
        summary="Put another configuration in force, on record",
        permission=ADMINISTER,
        handler=put_config,
        body=_YAML,
        replies=ok("in force", "ConfigChanged"),
    ),
    Endpoint(
        method="POST",
        path="/v1/config:check",
        operation="checkConfig",
        tag="administration",
        summary="Whether a configuration compiles; changes nothing",
        permission=ADMINISTER,
        handler=check_config,
        body=_YAML,
        replies=ok("what was found", "ConfigChecked"),
    ),
    Endpoint(
        method="POST",
        path="/v1/config:draft",
        operation="draftPolicy",
        tag="administration",
        summary="A policy drafted from plain words by the configured model, with test cases; changes nothing",
        permission=ADMINISTER,
        handler=draft_config,
        body=Body(schema=ref("DraftRequest")),
        replies={
            **ok("the draft, and what the gateway made of its test cases", "Drafted"),
            **failing(
                s404="no model is configured",
                s409="the configuration's file is not what is in force",
                s502="the model did not answer, or not as it was asked",
            ),
        },
    ),
    Endpoint(
        method="POST",
        path="/v1/config:replay",
        operation="replayConfig",
        tag="administration",
        summary="What a configuration would have made of recorded calls; changes nothing",
        permission=ADMINISTER,
        handler=replay_config,
        body=_YAML,
        query=(
            *exact("agent", "session", "tool"),
            SINCE,
            UNTIL,
            Param(
                name="limit",
                schema={"type": "integer", "minimum": 1, "maximum": MAX_REPLAYED, "default": DEFAULT_CALLS},
                text="how many calls, newest first",
            ),
            CURSOR,
        ),
        replies=ok("the calls that would have ended otherwise", "Replay"),
    ),
)
