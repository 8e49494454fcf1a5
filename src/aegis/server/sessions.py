"""Sessions: opened by the host with the task that is trusted, listed and traced from the log."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import to_builtins
from starlette.responses import Response

from aegis.core.ports import Entry, Search, SessionRow
from aegis.errors import InvalidCall
from aegis.gate.ids import new_id
from aegis.server.answers import answer
from aegis.server.endpoint import Asked
from aegis.server.paging import DEFAULT_LIMIT, index_of, page
from aegis.server.receipts import listed
from aegis.server.services import Services


async def open_session(asked: Asked) -> Response:
    """Open a session under the caller's principal; the same name with other words is a conflict."""
    body = asked.body
    opened = await asked.services.gate.aopen_session(
        body.get("session") or new_id(),
        task=body.get("task", ""),
        mission=body.get("mission"),
        tools=body.get("available_tools"),
        proof=body.get("proof"),
        owner=body.get("owner", ""),
        mounts=body.get("mounts", ()),
        principal=asked.principal,
    )
    value: dict[str, Any] = {"session": opened.session, "receipt": to_builtins(opened.receipt)}
    if opened.audience is not None:
        value["audience"], value["next_number"] = opened.audience, opened.number
    return answer(value, 201 if opened.fresh else 200)


async def list_sessions(asked: Asked) -> Response:
    """Sessions by their last entry, newest first."""
    limit, before = asked.query.get("limit", DEFAULT_LIMIT), index_of(asked.query.get("cursor"))
    rows = await asyncio.to_thread(_sessions, asked.services, before, limit)
    return answer(page([_row(row) for row in rows], rows[-1].last if len(rows) == limit else None))


async def trace_session(asked: Asked) -> Response:
    """Everything that the log holds of the sessions of that name, newest first."""
    query = asked.query
    limit = query.get("limit", DEFAULT_LIMIT)
    search = Search(
        session=asked.path["id"],
        principal=query.get("principal", ""),
        agent=query.get("agent", ""),
        before=index_of(query.get("cursor")),
        limit=limit,
    )
    entries = await asyncio.to_thread(_search, asked.services, search)
    if not entries and "cursor" not in query:
        raise InvalidCall("the log holds nothing of such a session", code="not_found", status=404)
    return answer({"session": asked.path["id"], **listed(entries, limit)})


def _sessions(services: Services, before: int | None, limit: int) -> list[SessionRow]:
    with services.store.reader() as reader:
        return reader.sessions(before=before, limit=limit)


def _search(services: Services, search: Search) -> list[Entry]:
    with services.store.reader() as reader:
        return reader.search(search)


def _row(row: SessionRow) -> dict[str, Any]:
    return {
        "session": row.session,
        "principal": row.principal,
        "agent": row.agent,
        "first": row.first,
        "last": row.last,
        "count": row.count,
    }
