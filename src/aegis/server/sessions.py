"""Sessions: opened by the host with the task that is trusted, listed and traced from the log."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from aegis.core.ports import Entry, Search, SessionRow
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.ids import new_id
from aegis.gate.sessions import Opened, find_session, opening
from aegis.missions.sessions import ChallengeGone
from aegis.server.answers import answer
from aegis.server.endpoint import Asked
from aegis.server.paging import DEFAULT_LIMIT, index_of, page
from aegis.server.receipts import listed
from aegis.server.services import Services

# What a host says of a session that serves a mission.
_OF_MISSIONS: Final = ("available_tools", "proof")


async def open_session(asked: Asked) -> Response:
    """Open a session under the caller's principal; the same name with another task is a conflict."""
    body = asked.body
    session, task = body.get("session") or new_id(), body.get("task", "")
    mission = body.get("mission")
    if mission is None:
        for name in _OF_MISSIONS:
            if name in body:
                raise InvalidCall(f"`{name}` belongs to a `mission`, which is not named", code="malformed")
    opened = await asyncio.to_thread(_find, asked, session)
    if opened is not None:
        if mission is not None:
            raise InvalidCall("this session is open already", code="conflict", hint="choose another name", status=409)
        return _again(opened, task)
    unit = opening(asked.principal, session, task)
    if mission is not None:
        unit = await asyncio.to_thread(
            asked.services.gate.issuing.open,
            asked.principal,
            session,
            task,
            mission,
            proof=body.get("proof"),
            tools=body.get("available_tools"),
        )
    try:
        recorded = (await asked.services.gate.arecord(unit))[0]
    except ChallengeGone as error:
        raise error.refused() from error
    except StoreConflict as error:  # opened by another caller of this principal meanwhile
        opened = await asyncio.to_thread(_find, asked, session)
        if opened is None or mission is not None:
            raise InvalidCall("this session could not be opened", code="conflict", status=409) from error
        return _again(opened, task)
    receipt = {"id": recorded.receipt_id, "index": recorded.index, "leaf_hash": recorded.leaf_hash.hex()}
    return answer({"session": session, "receipt": receipt}, 201)


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
        before=index_of(query.get("cursor")),
        limit=limit,
    )
    entries = await asyncio.to_thread(_search, asked.services, search)
    if not entries and "cursor" not in query:
        raise InvalidCall("the log holds nothing of such a session", code="not_found", status=404)
    return answer({"session": asked.path["id"], **listed(entries, limit)})


def _again(opened: Opened, task: str) -> Response:
    if opened.task != task:
        raise InvalidCall(
            "this session is open with another task", code="conflict", hint="choose another name", status=409
        )
    receipt = {"id": opened.receipt_id, "index": opened.index, "leaf_hash": opened.leaf_hash}
    return answer({"session": opened.session, "receipt": receipt})


def _find(asked: Asked, session: str) -> Opened | None:
    services = asked.services
    with services.store.reader() as reader:
        return find_session(services.gate.parts, reader, asked.principal, session)


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
