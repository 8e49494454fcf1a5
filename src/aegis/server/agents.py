"""Agents: which are known, and the switch that stops one before its next call."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from aegis.bootstrap.agents import known_agents, seen_agents
from aegis.core.receipt import Recorded
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.control import set_agent
from aegis.server.answers import answer
from aegis.server.endpoint import Asked
from aegis.server.paging import DEFAULT_LIMIT, page, place_of
from aegis.server.services import Services


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
