"""`GET /v1/receipts` and `/v1/receipts/{id}`: searching the log, and one receipt with its payload."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.responses import Response

from aegis.audit.writer import Unit
from aegis.core.ports import Entry, Search
from aegis.core.receipt import Draft
from aegis.core.times import from_rfc3339
from aegis.errors import InvalidCall
from aegis.gate.ids import new_id
from aegis.gate.repeat import load_payload
from aegis.server.answers import answer
from aegis.server.endpoint import Asked
from aegis.server.paging import DEFAULT_LIMIT, index_of, page
from aegis.server.receipt_view import payload_view, summary
from aegis.server.services import Services

_FILTERS = ("kind", "principal", "agent", "session", "call_id", "tool", "decision", "reason", "parent")


async def list_receipts(asked: Asked) -> Response:
    """Receipts that match every filter, newest first."""
    query = asked.query
    limit = query.get("limit", DEFAULT_LIMIT)
    search = Search(
        **{name: query[name] for name in _FILTERS if name in query},
        since=moment(query, "since"),
        until=moment(query, "until"),
        before=index_of(query.get("cursor")),
        limit=limit,
    )
    entries = await asyncio.to_thread(_search, asked.services, search)
    return answer(listed(entries, limit))


async def get_receipt(asked: Asked) -> Response:
    """One receipt; `reveal=true` shows its payload unmasked, and is itself recorded first."""
    services, reveal = asked.services, asked.query.get("reveal", False)
    entry, payload = await asyncio.to_thread(_detail, services, asked.path["id"])
    if reveal and payload is not None:
        await services.gate.arecord(Unit(drafts=(_access(entry, asked.principal.id),)))
    return answer(
        {
            "receipt": orjson.loads(entry.body),
            "leaf_hash": entry.leaf_hash.hex(),
            "payload": None if payload is None else payload_view(payload, reveal=reveal),
            "revealed": bool(reveal and payload is not None),
        }
    )


def listed(entries: list[Entry], limit: int) -> dict[str, Any]:
    """One page of receipts, with the cursor of the next where this one is full."""
    following = entries[-1].index if len(entries) == limit else None
    return page([summary(orjson.loads(entry.body)) for entry in entries], following)


def moment(query: Any, name: str) -> int | None:
    """The time of a parameter in microseconds since the epoch; raises `InvalidCall` where it is none."""
    text = query.get(name)
    if text is None:
        return None
    try:
        return from_rfc3339(text)
    except (ValueError, OverflowError) as error:
        raise InvalidCall(f"`{name}` is not an RFC 3339 time", hint="such as 2026-01-02T03:04:05Z") from error


def _search(services: Services, search: Search) -> list[Entry]:
    with services.store.reader() as reader:
        return reader.search(search)


def _detail(services: Services, receipt_id: str) -> tuple[Entry, dict[str, Any] | None]:
    with services.store.reader() as reader:
        entry = reader.entry_by_id(receipt_id)
        if entry is None:
            raise InvalidCall("there is no such receipt", code="not_found", status=404)
        payload, _ = load_payload(services.gate.parts, reader, entry)
    return entry, payload


def _access(entry: Entry, principal: str) -> Draft:
    return Draft(
        members={
            "kind": "access",
            "receipt_id": new_id(),
            "parent": entry.receipt_id,
            "principal": principal,
            "action": "reveal",
        }
    )
