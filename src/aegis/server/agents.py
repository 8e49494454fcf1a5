"""Agents: which are known, and the switch that stops one before its next call."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.responses import Response

from aegis.core.ports import Document
from aegis.core.receipt import Recorded
from aegis.errors import InvalidCall
from aegis.gate.control import COLLECTION, set_agent
from aegis.server.answers import answer
from aegis.server.endpoint import Asked
from aegis.server.paging import DEFAULT_LIMIT, page, place_of
from aegis.server.services import Services


async def list_agents(asked: Asked) -> Response:
    """Agents that were registered, stopped or restored, by name."""
    limit = asked.query.get("limit", DEFAULT_LIMIT)
    after, state = place_of(asked.query.get("cursor")) or "", asked.query.get("state", "")
    rows = await asyncio.to_thread(_documents, asked.services, state, after, limit)
    return answer(page([_view(row) for row in rows], rows[-1].key if len(rows) == limit else None))


async def get_agent(asked: Asked) -> Response:
    """One agent; a name that was never registered is not found, though it may hold a key."""
    return answer(_view(await asyncio.to_thread(_found, asked.services, asked.path["id"])))


async def register_agent(asked: Asked) -> Response:
    """Make an agent known; one that is known already is a conflict."""
    name: str = asked.body["agent"]
    if await asyncio.to_thread(_document, asked.services, name) is not None:
        raise InvalidCall("this agent is known already", code="conflict", status=409)
    return await _set(asked, name, "active", asked.body.get("reason", ""), status=201)


async def revoke_agent(asked: Asked) -> Response:
    """Stop an agent: its next call is refused, in every process on this store."""
    return await _set(asked, asked.path["id"], "revoked", _reason(asked))


async def restore_agent(asked: Asked) -> Response:
    """Let a stopped agent go on."""
    return await _set(asked, asked.path["id"], "active", _reason(asked))


async def _set(asked: Asked, name: str, state: str, reason: str, *, status: int = 200) -> Response:
    unit = set_agent(name, state=state, reason=reason, principal=asked.principal.id)
    recorded = (await asked.services.gate.arecord(unit))[0]
    return answer({"agent": name, "state": state, "reason": reason, "receipt": receipt_ref(recorded)}, status)


def receipt_ref(recorded: Recorded) -> dict[str, Any]:
    """Where the log keeps what was just recorded."""
    return {"id": recorded.receipt_id, "index": recorded.index, "leaf_hash": recorded.leaf_hash.hex()}


def _reason(asked: Asked) -> str:
    reason: str = (asked.body or {}).get("reason", "")
    return reason


def _documents(services: Services, state: str, after: str, limit: int) -> list[Document]:
    with services.store.reader() as reader:
        return reader.documents(COLLECTION, state=state, after=after, limit=limit)


def _document(services: Services, name: str) -> Document | None:
    with services.store.reader() as reader:
        return reader.document(COLLECTION, name)


def _found(services: Services, name: str) -> Document:
    document = _document(services, name)
    if document is None:
        raise InvalidCall("there is no such agent", code="not_found", status=404)
    return document


def _view(document: Document) -> dict[str, Any]:
    body = orjson.loads(document.body)
    return {"agent": document.key, "state": document.state, "reason": body["reason"], "by": body["by"]}
