"""Approvals over HTTP: the queue, one approval (also as a long poll), and the answer of a person."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from aegis.approvals import grants
from aegis.approvals.grants import from_document as grant_from_document
from aegis.approvals.model import COLLECTION, Approval, from_document
from aegis.approvals.queue import load, revoked
from aegis.core.ports import Reader
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.gate.answering import Answer, may_answer
from aegis.gate.ids import new_id
from aegis.gate.previews import preview_of
from aegis.gate.running import payload_of, running
from aegis.server.answers import answer
from aegis.server.approval_view import approval_view, grant_view, status_view, with_payload
from aegis.server.endpoint import Asked
from aegis.server.paging import DEFAULT_LIMIT, page, place_of
from aegis.server.services import Services

LOOK_S: Final = 2.0  # how often a waiting client's approval is looked at even where nothing was heard of it
SCAN: Final = 200  # approvals read at once while a list is filtered
MAX_SCANNED: Final = 10_000  # approvals looked at for one page: a rare filter gives a short page and a cursor


async def list_approvals(asked: Asked) -> Response:
    """The queue: pending approvals unless `state` asks for others."""
    return answer(await asyncio.to_thread(_list, asked))


async def get_approval(asked: Asked) -> Response:
    """One approval; with `wait`, as soon as it is not pending any more, or after that many seconds."""
    services, approval_id = asked.services, asked.path["id"]
    with services.waiting.watch(approval_id) as watched:
        deadline = asyncio.get_running_loop().time() + asked.query.get("wait", 0)
        while True:
            left = deadline - asyncio.get_running_loop().time()
            last = left <= 0 or services.draining.is_set()
            approval, shown = await asyncio.to_thread(_look, asked, approval_id, last=last)
            if shown is not None:
                return answer(shown)
            await watched.changed(min(left, LOOK_S, approval.seconds_left(services.clock())))


async def resolve_approval(asked: Asked) -> Response:
    """Approve or deny, once, by somebody who did not ask for the call."""
    body = asked.body
    given = Answer(
        decision=body["decision"],
        reason=body.get("reason"),
        scope=body.get("scope", "once"),
        arguments=body.get("arguments"),
        call_digest=body.get("call_digest"),
        policy_digest=body.get("policy_digest"),
    )
    approval = await asked.services.gate.aanswer(asked.path["id"], given, principal=asked.principal)
    return answer(await asyncio.to_thread(_view, asked, approval))


async def list_grants(asked: Asked) -> Response:
    """Grants, revoked and expired ones included, by id."""
    return answer(await asyncio.to_thread(_grants, asked))


async def revoke_grant(asked: Asked) -> Response:
    """Take a grant back; the next call asks a person again."""
    services, grant_id = asked.services, asked.path["id"]
    await services.gate.arecord(revoked(grant_id, by=asked.principal.id, receipt_id=new_id()))
    return answer(await asyncio.to_thread(_grant, services, grant_id))


def _look(asked: Asked, approval_id: str, *, last: bool) -> tuple[Approval, dict[str, Any] | None]:
    """The approval, and its view where it is answered or this is the last look."""
    approval = _visible(asked, approval_id)
    waits = approval.state_at(asked.services.clock()) == "pending" and not last
    return approval, None if waits else _view(asked, approval)


def _grants(asked: Asked) -> dict[str, Any]:
    services, limit = asked.services, asked.query.get("limit", DEFAULT_LIMIT)
    after = place_of(asked.query.get("cursor")) or ""
    with services.store.reader() as reader:
        documents = reader.documents(grants.COLLECTION, after=after, limit=limit)
    now = services.clock()
    items = [grant_view(grant_from_document(document), now=now) for document in documents]
    return page(items, documents[-1].key if len(documents) == limit else None)


def _grant(services: Services, grant_id: str) -> dict[str, Any]:
    with services.store.reader() as reader:
        grant = grants.find(reader, grant_id)
    if grant is None:
        raise InvalidCall("there is no such grant", code="not_found", status=404)
    return grant_view(grant, now=services.clock())


def _list(asked: Asked) -> dict[str, Any]:
    query, services = asked.query, asked.services
    limit, state = query.get("limit", DEFAULT_LIMIT), query.get("state", "pending")
    after = place_of(query.get("cursor")) or ""
    now = services.clock()
    items: list[dict[str, Any]] = []
    scanned = 0
    with services.store.reader() as reader:
        while True:
            stored = "" if state in ("all", "expired") else state
            documents = reader.documents(COLLECTION, state=stored, after=after, limit=SCAN)
            for document in documents:
                after = document.key
                approval = from_document(document)
                if _matches(asked, approval, now):
                    items.append(_shown(services, reader, asked.principal, approval, now))
                    if len(items) == limit:
                        return page(items, after)
            scanned += len(documents)
            if len(documents) < SCAN:
                return page(items, None)
            if scanned >= MAX_SCANNED:
                return page(items, after)


def _matches(asked: Asked, approval: Approval, now: int) -> bool:
    query, state = asked.query, asked.query.get("state", "pending")
    return (
        (state in ("all", approval.state_at(now)))
        and all(name not in query or query[name] == getattr(approval, name) for name in ("agent", "session", "tool"))
        and _may_see(asked.principal, approval)
    )


def _may_see(principal: Principal, approval: Approval) -> bool:
    return "approver" in principal.roles or approval.principal == principal.id


def _shown(services: Services, reader: Reader, principal: Principal, approval: Approval, now: int) -> dict[str, Any]:
    if "approver" not in principal.roles:
        return status_view(approval, now=now)
    policy = services.policy.current
    asked = policy.approval_for(approval.server, approval.tool, approval.held_by)
    held = payload_of(services.gate.parts, reader, approval.decision_id)
    runs = running(services.gate.parts, reader, approval)
    return {
        **with_payload(approval_view(approval, now=now), held=held, runs=runs),
        "preview": preview_of(services.gate.parts, reader, approval),
        "may_answer": may_answer(principal, approval, asked, policy, now),
        "approvers": [list(asked.approvers), *(list(names) for names in asked.also)],
        "session_grant_seconds": asked.session_grant_seconds if approval.session else 0,
    }


def _view(asked: Asked, approval: Approval) -> dict[str, Any]:
    with asked.services.store.reader() as reader:
        return _shown(asked.services, reader, asked.principal, approval, asked.services.clock())


def _visible(asked: Asked, approval_id: str) -> Approval:
    with asked.services.store.reader() as reader:
        approval = load(reader, approval_id)
    if not _may_see(asked.principal, approval):  # the same answer as for one that does not exist
        raise InvalidCall("there is no such approval", code="not_found", status=404)
    return approval
