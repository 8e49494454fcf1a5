"""Approvals over HTTP: the queue, one approval (also as a long poll), and the answer of a person."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, Final

from starlette.responses import Response

from aegis.approvals.model import COLLECTION, Approval, from_document
from aegis.approvals.queue import find, transition
from aegis.core.ports import Reader
from aegis.core.principal import Principal
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.ids import new_id
from aegis.gate.repeat import load_payload
from aegis.server.answers import answer
from aegis.server.approval_view import approval_view, state_at, status_view, with_payload
from aegis.server.endpoint import Asked
from aegis.server.paging import DEFAULT_LIMIT, page, place_of
from aegis.server.services import Services

POLL_S: Final = 0.2  # how soon a waiting client hears of an answer, whichever process took it
SCAN: Final = 200  # approvals read at once while a list is filtered
MAX_SCANNED: Final = 10_000  # approvals looked at for one page: a rare filter gives a short page and a cursor


async def list_approvals(asked: Asked) -> Response:
    """The queue: pending approvals unless `state` asks for others."""
    return answer(await asyncio.to_thread(_list, asked))


async def get_approval(asked: Asked) -> Response:
    """One approval; with `wait`, as soon as it is not pending any more, or after that many seconds."""
    services, deadline = asked.services, monotonic() + asked.query.get("wait", 0)
    while True:
        approval = await asyncio.to_thread(_visible, asked, asked.path["id"])
        pending = state_at(approval, services.clock()) == "pending"
        if not pending or monotonic() >= deadline or services.draining.is_set():
            return answer(await asyncio.to_thread(_view, asked, approval))
        await asyncio.sleep(POLL_S)


async def resolve_approval(asked: Asked) -> Response:
    """Approve or deny, once, by somebody who did not ask for the call."""
    services, body, principal = asked.services, asked.body, asked.principal
    approval = await asyncio.to_thread(_found, services, asked.path["id"])
    _check_standing(services, principal, approval, approves=body["decision"] == "approve")
    if approval.principal == principal.id or (principal.agent is not None and principal.agent == approval.agent):
        raise InvalidCall("nobody answers a call of their own", code="own_call", status=403)
    for name in ("call_digest", "policy_digest"):
        if name in body and body[name] != getattr(approval, name):
            raise InvalidCall(
                "what was shown is not what is held", code="conflict", hint="load the approval again", status=409
            )
    now = services.clock()
    if state_at(approval, now) != "pending":
        raise InvalidCall(f"this approval is {state_at(approval, now)}", code="not_pending", status=409)
    unit = transition(
        approval,
        "approved" if body["decision"] == "approve" else "denied",
        receipt_id=new_id(),
        principal=principal.id,
        now=now,
        approvers=(principal.id,),
        reason=body.get("reason"),
    )
    try:
        await services.gate.arecord(unit)
    except StoreConflict as error:
        raise InvalidCall("this approval was answered meanwhile", code="not_pending", status=409) from error
    return answer(await asyncio.to_thread(_resolved, asked))


def _check_standing(services: Services, principal: Principal, approval: Approval, *, approves: bool) -> None:
    """Guarantee that the policy in force names this approver; raises `InvalidCall` otherwise."""
    policy = services.policy.current.approval_for(approval.server, approval.tool)
    names = {f"user:{principal.id}", *(f"role:{role}" for role in principal.roles)}
    if names.isdisjoint(policy.approvers):
        wanted = ", ".join(f"`{name}`" for name in policy.approvers)
        raise InvalidCall(
            "the configuration names other approvers for this tool", code="forbidden", hint=wanted, status=403
        )
    if approves and policy.quorum > 1:
        raise InvalidCall(
            f"this tool asks for {policy.quorum} approvers, which is not available in this version",
            code="not_available",
            hint="deny, or set `quorum: 1`",
        )


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
        (state in ("all", state_at(approval, now)))
        and all(name not in query or query[name] == getattr(approval, name) for name in ("agent", "session", "tool"))
        and _may_see(asked.principal, approval)
    )


def _may_see(principal: Principal, approval: Approval) -> bool:
    return "approver" in principal.roles or approval.principal == principal.id


def _shown(services: Services, reader: Reader, principal: Principal, approval: Approval, now: int) -> dict[str, Any]:
    if "approver" not in principal.roles:
        return status_view(approval, now=now)
    entry = reader.entry_by_id(approval.decision_id)
    payload = None if entry is None else load_payload(services.gate.parts, reader, entry.index)[0]
    return with_payload(approval_view(approval, now=now), payload)


def _view(asked: Asked, approval: Approval) -> dict[str, Any]:
    with asked.services.store.reader() as reader:
        return _shown(asked.services, reader, asked.principal, approval, asked.services.clock())


def _resolved(asked: Asked) -> dict[str, Any]:
    return _view(asked, _found(asked.services, asked.path["id"]))


def _visible(asked: Asked, approval_id: str) -> Approval:
    approval = _found(asked.services, approval_id)
    if not _may_see(asked.principal, approval):  # the same answer as for one that does not exist
        raise _missing()
    return approval


def _found(services: Services, approval_id: str) -> Approval:
    with services.store.reader() as reader:
        approval = find(reader, approval_id)
    if approval is None:
        raise _missing()
    return approval


def _missing() -> InvalidCall:
    return InvalidCall("there is no such approval", code="not_found", status=404)
