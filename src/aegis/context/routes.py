"""Sessions: opened by the host with the task that is trusted, listed and traced from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from msgspec import to_builtins
from starlette.responses import Response

from aegis.context.flow import find_flow, principal_of
from aegis.context.heads import COLLECTION as MEMORY
from aegis.context.heads import MemoryHead, read_head, words_of
from aegis.context.opening import MAX_OPENING_TURNS
from aegis.context.sessions import MAX_MOUNTS, key_of_session
from aegis.context.turns import MAX_DOCUMENTS, MAX_NUMBER, MAX_TURN_BYTES, load_turns
from aegis.core.call import MAX_TASK_CHARS
from aegis.core.decision import ParentSession
from aegis.core.ports import Reader, Search, SessionRow
from aegis.errors import InvalidCall
from aegis.gate.events import new_id
from aegis.missions.routes import TOKEN
from aegis.policy.dataflow.declare import SENSITIVITIES
from aegis.policy.dataflow.drift import tool_text
from aegis.server.admission import AUDIT, OPEN_SESSION
from aegis.server.audit import listed, moment
from aegis.server.endpoint import ApiRequest, Body, Endpoint
from aegis.server.http import DEFAULT_LIMIT, answer, index_of, page
from aegis.server.schemas import (
    CURSOR,
    ID,
    LIMIT,
    NAME,
    SINCE,
    TEXT,
    UNTIL,
    WHOLE,
    Schema,
    closed,
    exact,
    failing,
    listing,
    named,
    nullable,
    ok,
    optional,
    ref,
)
from aegis.server.services import Services

MAX_TOOLS: Final = 2_000

SCHEMAS: Final[dict[str, Schema]] = {
    "SessionOpening": optional(
        {
            "session": {**NAME, "description": "its name under this principal; drawn where it is left out"},
            "task": {"type": "string", "maxLength": MAX_TASK_CHARS, "description": "what the user asked for"},
            "owner": {**NAME, "description": "the person for whom it runs, who may be barred from approving its calls"},
            "available_tools": {
                "type": "array",
                "maxItems": MAX_TOOLS,
                "description": "what the host offers the agent: names or whole definitions",
            },
            "mounts": {
                "type": "array",
                "items": TEXT,
                "maxItems": MAX_MOUNTS,
                "description": "the folders on the gateway's machine that the agent works in",
            },
            "turns": {
                "type": "array",
                "items": TEXT,
                "maxItems": MAX_OPENING_TURNS,
                "description": "what the user said after the task, in its order",
            },
            "parent": {
                **closed({"session": NAME, "call_id": NAME}, "session"),
                "description": "the session of the same principal that this one was opened from",
            },
            "mission": {**NAME, "description": "the id of the mission that the session serves"},
            "proof": {**TOKEN, "description": "answers the challenge with the key that the mission names"},
        }
    ),
    "SessionOpened": closed(
        {
            "session": TEXT,
            "receipt": ref("ReceiptRef"),
            "audience": {**TEXT, "description": "what the proofs of its calls are made for"},
            "next_number": {**WHOLE, "description": "the first sequence number that no proof has used"},
        },
        "session",
        "receipt",
    ),
    "Turn": closed(
        {
            "text": {**TEXT, "description": f"what the user said, at most {MAX_TURN_BYTES} bytes"},
            "turn": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_NUMBER,
                "description": "its number, the next if left out",
            },
            "documents": {
                "type": "array",
                "items": TEXT,
                "maxItems": MAX_DOCUMENTS,
                "description": "what the user pasted: it counts as read and untrusted",
            },
        },
        "text",
    ),
    "TurnSaid": closed({"session": TEXT, "turn": WHOLE, "receipt": ref("ReceiptRef")}),
    "SessionEnded": closed({"session": TEXT, "receipt": ref("ReceiptRef")}),
    "Attestation": closed({"session": TEXT, "attestation": TOKEN}),
    "Projection": closed(
        {"receipt_id": TEXT, "view": {"type": "string", "enum": ["public", "audit"]}, "projection": TOKEN}
    ),
    "SessionRow": closed(
        {"session": TEXT, "principal": TEXT, "agent": TEXT, "first": WHOLE, "last": WHOLE, "count": WHOLE}
    ),
    "Sessions": listing("SessionRow"),
    "Trace": closed(
        {
            "session": TEXT,
            "principal": TEXT,
            "task": {"type": "boolean", "description": "whether the user's words are known"},
            "turns": WHOLE,
            "labels": {"type": "array", "items": {"type": "string", "enum": list(SENSITIVITIES)}},
            "untrusted": {"type": "boolean", "description": "whether anything untrusted was read"},
            "sources": {"type": "array", "items": TEXT, "description": "tools whose results were read"},
            "effects": {"type": "array", "items": TEXT},
            "tools": {"type": "array", "items": TEXT},
            "calls": {**WHOLE, "description": "calls that were allowed"},
            "denials": {**WHOLE, "description": "calls that were blocked"},
            "drift": {
                **nullable({"type": "integer", "minimum": 0, "maximum": 100}),
                "description": "how far it went from the user's words, where they are known",
            },
            "measured": {
                **closed(
                    {
                        "model": {**TEXT, "description": "the embedding model that told it, empty where none did"},
                        "tools": {
                            "type": "object",
                            "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 100},
                        },
                        "missing": {"type": "array", "items": TEXT, "description": "tools that were only counted"},
                    }
                ),
                "description": "how far what its tools are called is from all that the user said",
            },
            "ended": {"type": "boolean", "description": "whether its host ended it, or nobody used it for too long"},
            "items": {"type": "array", "items": ref("Receipt")},
            "next": nullable(TEXT),
        }
    ),
    "FlowPlace": closed({"receipt": ID, "path": TEXT}),
    "SessionFlow": closed(
        {
            "sources": {
                "type": "array",
                "items": closed({"receipt": ID, "tool": TEXT, "trust": TEXT, "sensitivity": TEXT}),
            },
            "calls": {"type": "array", "items": closed({"receipt": ID, "tool": TEXT, "decision": TEXT})},
            "edges": {
                "type": "array",
                "items": closed(
                    {
                        "from": ref("FlowPlace"),
                        "to": ref("FlowPlace"),
                        "is": {**TEXT, "description": "the type of the value that stands in both places"},
                        "holds": {"type": "boolean", "description": "whether the call was held because of it"},
                    }
                ),
            },
            "complete": {"type": "boolean", "description": "false where a bound was met, in memory or in this answer"},
        }
    ),
}


LIST_FILTERS: Final = ("principal", "agent", "session")
TRACE_FILTERS: Final = ("kind", "principal", "agent", "call_id", "tool", "decision", "reason")
SCAN: Final = 200  # sessions read at once while a list is filtered
MAX_SCANNED: Final = 10_000  # sessions looked at for one page: a rare filter gives a short page and a cursor
MAX_INDEX: Final = 2**53 - 1


async def open_session(request: ApiRequest) -> Response:
    """Open a session under the caller's principal; the same name with other words is a conflict."""
    body = request.body
    parent = body.get("parent")
    opened = await request.services.gate.aopen_session(
        body.get("session") or new_id(),
        task=body.get("task", ""),
        mission=body.get("mission"),
        tools=body.get("available_tools"),
        proof=body.get("proof"),
        owner=body.get("owner", ""),
        mounts=body.get("mounts", ()),
        turns=body.get("turns", ()),
        parent=None if parent is None else ParentSession(session=parent["session"], call_id=parent.get("call_id")),
        principal=request.principal,
    )
    value: dict[str, Any] = {"session": opened.session, "receipt": to_builtins(opened.receipt)}
    if opened.audience is not None:
        value["audience"], value["next_number"] = opened.audience, opened.number
    return answer(value, 201 if opened.fresh else 200)


SESSION_OPENING: Final = Endpoint(
    method="POST",
    path="/v1/sessions",
    operation="openSession",
    tag="judging",
    summary="Open a session with the task that the host trusts",
    permission=OPEN_SESSION,
    handler=open_session,
    body=Body(schema=ref("SessionOpening")),
    replies={
        **ok("opened", "SessionOpened", 201),
        **ok("it was open already, with the same words", "SessionOpened"),
        **failing(
            s403="the parent is no session of this principal",
            s404="there is no such mission",
            s409="it is open with another task, mission, parent or list of tools, or another turn was said",
            s413="a turn is too long",
        ),
    },
)


async def say_turn(request: ApiRequest) -> Response:
    """Record what the user said in one of the caller's sessions."""
    body = request.body
    said = await request.services.gate.aadd_turn(
        request.path["id"],
        body["text"],
        turn=body.get("turn"),
        documents=body.get("documents", ()),
        principal=request.principal,
    )
    value = {"session": said.session, "turn": said.turn, "receipt": to_builtins(said.receipt)}
    return answer(value, 201 if said.fresh else 200)


SAY_TURN: Final = Endpoint(
    method="POST",
    path="/v1/sessions/{id:path}/turns",
    operation="sayTurn",
    tag="judging",
    summary="Record what the user said in a session, which it opens where it is not open",
    permission=OPEN_SESSION,
    handler=say_turn,
    path_params=named("name of the session"),
    body=Body(schema=ref("Turn")),
    replies={
        **ok("recorded", "TurnSaid", 201),
        **ok("it was said already, with the same text", "TurnSaid"),
        **failing(
            s409="another text was said under this number, or the session has as many turns as it may",
            s413="its text or its documents are too long",
        ),
    },
)


async def end_session(request: ApiRequest) -> Response:
    """End one of the caller's sessions: nothing is said or called in it from then on."""
    ended = await request.services.gate.aend_session(request.path["id"], principal=request.principal)
    value = {"session": ended.session, "receipt": to_builtins(ended.receipt)}
    return answer(value, 201 if ended.fresh else 200)


END_SESSION: Final = Endpoint(
    method="POST",
    path="/v1/sessions/{id:path}/end",
    operation="endSession",
    tag="judging",
    summary="End a session: nothing is said or called in it from then on, and what waits or was granted in it ends",
    permission=OPEN_SESSION,
    handler=end_session,
    path_params=named("name of the session"),
    replies={
        **ok("ended", "SessionEnded", 201),
        **ok("it had ended already", "SessionEnded"),
        **failing(s404="this principal has no session of that name"),
    },
)


async def list_sessions(request: ApiRequest) -> Response:
    """Show sessions by their last entry, newest first; those with anything in the span that match every filter."""
    return answer(await asyncio.to_thread(find_sessions, request.services, request.query))


LIST_SESSIONS: Final = Endpoint(
    method="GET",
    path="/v1/sessions",
    operation="listSessions",
    tag="audit",
    summary="Sessions by their last entry, newest first",
    permission=AUDIT,
    handler=list_sessions,
    query=(*exact(*LIST_FILTERS), SINCE, UNTIL, LIMIT, CURSOR),
    replies=ok("one page", "Sessions"),
)


async def trace_session(request: ApiRequest) -> Response:
    """What a session read and did, and everything that the log holds of it, newest first."""
    return answer(await asyncio.to_thread(_described, request.services, request.path["id"], request.query))


TRACE_SESSION: Final = Endpoint(
    method="GET",
    path="/v1/sessions/{id:path}",
    operation="traceSession",
    tag="audit",
    summary="What a session read and did, and everything that the log holds of it, newest first",
    permission=AUDIT,
    handler=trace_session,
    path_params=named("name of the session"),
    query=(*exact(*TRACE_FILTERS), SINCE, UNTIL, LIMIT, CURSOR),
    replies={
        **ok("one page of the trace", "Trace"),
        **failing(s404="the log holds nothing of it", s409="several principals have a session of that name"),
    },
)


async def show_flow(request: ApiRequest) -> Response:
    """Where the values of a session's calls came from; no value is told."""
    return answer(await asyncio.to_thread(find_flow, request.services, request.path["id"], request.query))


SESSION_FLOW: Final = Endpoint(
    method="GET",
    path="/v1/sessions/{id:path}/flow",
    operation="showFlow",
    tag="audit",
    summary="Where the values of a session's calls came from",
    permission=AUDIT,
    handler=show_flow,
    path_params=named("name of the session"),
    query=exact("principal", "agent"),
    replies={
        **ok("sources, calls, and the places in both at which the same value stands", "SessionFlow"),
        **failing(s404="the log holds nothing of it", s409="several principals have a session of that name"),
    },
)


def find_sessions(services: Services, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of sessions, by the parameters of `LIST_SESSIONS`."""
    since, until = moment(query, "since"), moment(query, "until")
    limit, before = query.get("limit", DEFAULT_LIMIT), index_of(query.get("cursor"))
    wanted = [(name, query[name]) for name in LIST_FILTERS if name in query]
    at_once = SCAN if wanted or since is not None or until is not None else limit
    found: list[SessionRow] = []
    with services.store.reader() as reader:
        first = -1 if since is None else _last_until(reader, since - 1) + 1
        end = MAX_INDEX if until is None else _last_until(reader, until)
        for _ in range(MAX_SCANNED // SCAN):
            rows = reader.sessions(before=before, limit=at_once)
            for row in rows:
                if row.last < first:
                    return page([_row(one) for one in found], None)
                if row.first <= end and all(getattr(row, name) == value for name, value in wanted):
                    found.append(row)
                    if len(found) == limit:
                        return page([_row(one) for one in found], row.last)
            if len(rows) < at_once:
                return page([_row(one) for one in found], None)
            before = rows[-1].last
    return page([_row(one) for one in found], before)


def find_trace(services: Services, session: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of a session's receipts, by the parameters of `TRACE_SESSION`; raises `InvalidCall` (404)."""
    limit = query.get("limit", DEFAULT_LIMIT)
    search = Search(
        session=session,
        **{name: query[name] for name in TRACE_FILTERS if name in query},
        since=moment(query, "since"),
        until=moment(query, "until"),
        before=index_of(query.get("cursor")),
        limit=limit,
    )
    with services.store.reader() as reader:
        entries = reader.search(search)
    if not entries and query.keys() <= {"limit", "principal", "agent"}:
        raise InvalidCall("the log holds nothing of such a session", code="not_found", status=404)
    return {"session": session, **listed(entries, limit)}


def _described(services: Services, session: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page of the trace with what the session read and did; raises `InvalidCall` (404, 409)."""
    found = find_trace(services, session, query)
    principal = query.get("principal") or principal_of(services, session, query.get("agent", ""))
    key = key_of_session(principal, session)
    parts = services.gate.parts
    with services.store.reader() as reader:
        document = reader.document(MEMORY, key)
        head = MemoryHead(secret=b"") if document is None else read_head(document)
        is_known = bool(words_of(parts, reader, key, 0))
        turns = head.turns or len(load_turns(reader, key).turns)
    return {
        "session": session,
        "principal": principal,
        "task": is_known,
        "turns": turns,
        "labels": list(head.labels),
        "untrusted": head.untrusted,
        "sources": list(head.sources),
        "effects": list(head.effects),
        "tools": list(head.tools),
        "calls": head.calls,
        "denials": head.denials,
        "drift": head.drift if is_known else None,
        "measured": _measured(head, is_known=is_known),
        "ended": bool(head.ended),
        **found,
    }


def _measured(head: MemoryHead, *, is_known: bool) -> dict[str, Any]:
    """What an embedding model told of a session's tools, and which of them it told nothing of."""
    told = head.measured_of()
    missing = sorted({text for tool in head.tools if (text := tool_text(tool)) not in told}) if is_known else []
    return {"model": head.measured_by if told else "", "tools": told, "missing": missing}


def _last_until(reader: Reader, time: int) -> int:
    """Return the index of the last entry that is not after `time`, or -1."""
    found = reader.search(Search(until=time, limit=1))
    return found[0].index if found else -1


def _row(row: SessionRow) -> dict[str, Any]:
    return {
        "session": row.session,
        "principal": row.principal,
        "agent": row.agent,
        "first": row.first,
        "last": row.last,
        "count": row.count,
    }


OPENING: Final = (SESSION_OPENING, SAY_TURN, END_SESSION)

SESSIONS: Final = (
    LIST_SESSIONS,
    SESSION_FLOW,  # before the name of a session, which takes slashes
    TRACE_SESSION,
)
