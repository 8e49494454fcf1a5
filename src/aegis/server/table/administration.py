"""Agents and the configuration."""

from __future__ import annotations

from typing import Final

from aegis.server.agents import get_agent, list_agents, register_agent, restore_agent, revoke_agent
from aegis.server.configuration import check_config, get_config, put_config
from aegis.server.drafting.route import draft_config
from aegis.server.endpoint import Body, Endpoint, Param
from aegis.server.limits import MAX_REPLAYED
from aegis.server.permissions import ADMINISTER
from aegis.server.replay import DEFAULT_CALLS, replay_config
from aegis.server.schemas.admin import AGENT_STATE
from aegis.server.schemas.common import ref
from aegis.server.table.parts import CURSOR, LIMIT, SINCE, UNTIL, exact, failing, named, ok

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
