"""Approvals over HTTP: the queue, one approval (also as a long poll), and the answer of a person."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, get_args

from starlette.responses import Response

from aegis.approvals import grants
from aegis.approvals.always import PROPOSE_STANDING, STANDING_SCHEMAS, WRITE_STANDING, alike
from aegis.approvals.answering import Answer, may_answer
from aegis.approvals.grants import from_document as grant_from_document
from aegis.approvals.previews.look import preview_of
from aegis.approvals.queue import load, revoked
from aegis.approvals.values import COLLECTION, Approval, Scope, from_document, payload_of, running
from aegis.approvals.view import approval_view, grant_view, status_view, with_payload
from aegis.core.ports import Reader
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.gate.events import new_id
from aegis.server.admission import RESOLVE, SEE_APPROVALS, SEE_GRANTS
from aegis.server.endpoint import ApiRequest, Body, Endpoint, Param
from aegis.server.http import DEFAULT_LIMIT, MAX_REASON_CHARS, MAX_WAIT_S, answer, page, place_of
from aegis.server.schemas import (
    ANY_OBJECT,
    CURSOR,
    DIGEST,
    FINDINGS,
    ID,
    LIMIT,
    TEXT,
    TIME,
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

# Held calls.

STATES: Final = ("pending", "approved", "denied", "expired", "cancelled", "redeemed")
_STATUS: Final[dict[str, Schema]] = {
    "id": ID,
    "kind": {
        "type": "string",
        "enum": ["approval", "deferral"],
        "description": "what it waits for: people, or evidence",
    },
    "state": {"type": "string", "enum": list(STATES)},
    "waiting_for": {
        "type": "array",
        "items": TEXT,
        "description": "of a deferral: `result:CALL_ID`, `turn`, `session:FIELD`, `status:NAME`, `evidence:POINTER`",
    },
    "call_id": TEXT,
    "call_digest": DIGEST,
    "expires_at": TIME,
}

_SCOPE: Final[Schema] = {"type": "string", "enum": list(get_args(Scope))}
_FLOW_GRANT: Final = optional({"scope": _SCOPE, "document": ID, "sink": TEXT, "is": TEXT, "does": TEXT, "tool": TEXT})

SCHEMAS: Final[dict[str, Schema]] = {
    "Approval": closed(
        {
            **_STATUS,
            "tool": TEXT,
            "server": nullable(TEXT),
            "agent": TEXT,
            "principal": TEXT,
            "session": nullable(TEXT),
            "decision_id": ID,
            "policy_digest": TEXT,
            "created_at": TIME,
            "held_because": TEXT,
            "facts": closed(
                {
                    "risk": TEXT,
                    "effects": {"type": "array", "items": TEXT},
                    "irreversible": {"type": "boolean"},
                    "files_bound": {
                        "type": "boolean",
                        "description": "every file that the call names is bound too",
                    },
                    "working_directory": {
                        **nullable(TEXT),
                        "description": "where its relative paths start, where that is known",
                    },
                },
                "risk",
                "effects",
                "irreversible",
                "files_bound",
                "working_directory",
            ),
            "replaced_by": {**nullable(TEXT), "description": "the call that took the place of a deferred one"},
            "grants": {
                "type": "array",
                "items": _FLOW_GRANT,
                "description": "what may be granted for the rest of the session; a deed `other` is of one `tool`",
            },
            "quorum": {"type": "integer", "minimum": 1},
            "votes": {
                "type": "array",
                "items": closed({"by": TEXT, "at": TIME, "scope": _SCOPE}, "by", "at", "scope"),
            },
            "turn": {"type": "integer", "minimum": 0, "description": "whose turn it is, in the order of `approvers`"},
            "approvers": {
                "type": "array",
                "items": {"type": "array", "items": TEXT},
                "description": "who may answer: an approver stands in every list",
            },
            "may_answer": {"type": "boolean", "description": "whether this credential may answer now"},
            "session_grant_seconds": {
                "type": "integer",
                "description": "how long a yes for the session would last; 0 where there is none",
            },
            "fatigued": {
                "type": "array",
                "items": TEXT,
                "description": "approvers who answered as often as one may in an hour",
            },
            "narrowed": {"type": "boolean", "description": "whether `arguments` are narrower than `submitted`"},
            "submitted": nullable(ANY_OBJECT),
            "task": nullable(TEXT),
            "grant": nullable(ID),
            "resolved_by": nullable(TEXT),
            "resolved_at": nullable(TIME),
            "reason": nullable(TEXT),
            "permit": {"type": "null", "description": "a permit goes to the agent alone"},
            "arguments": nullable(ANY_OBJECT),
            "preview": ANY_OBJECT,
            "findings": FINDINGS,
            "alike": {
                "type": "integer",
                "description": "how many such calls people approved, where that proposes a standing approval",
            },
        },
        "id",
        "state",
        "call_id",
        "call_digest",
        "expires_at",
    ),
    "Approvals": listing("Approval"),
    **STANDING_SCHEMAS,
    "Grant": closed(
        {
            "id": ID,
            "state": {"type": "string", "enum": ["active", "expired", "revoked"]},
            "approval_id": ID,
            "principal": TEXT,
            "agent": TEXT,
            "session": TEXT,
            "tool": TEXT,
            "server": nullable(TEXT),
            "call_digest": DIGEST,
            "policy_digest": DIGEST,
            "approvers": {"type": "array", "items": TEXT},
            "created_at": TIME,
            "expires_at": TIME,
            "revoked_by": nullable(TEXT),
            "grants": {
                "type": "array",
                "items": _FLOW_GRANT,
                "description": "what of the session's data flow it covers, in place of the same call again",
            },
        },
        "id",
        "state",
    ),
    "Grants": listing("Grant"),
    "Resolution": closed(
        {
            "decision": {"type": "string", "enum": ["approve", "deny"]},
            "reason": {"type": "string", "maxLength": MAX_REASON_CHARS},
            "arguments": {
                **ANY_OBJECT,
                "description": "with `approve`: what is to run instead, doing no more than what is held",
            },
            "scope": {
                **_SCOPE,
                "description": "`session`: the same call again; `document`, `deed`: what `grants` offers",
            },
            "call_digest": {**DIGEST, "description": "the digest that was shown; another one is refused (409)"},
            "policy_digest": {**DIGEST, "description": "the digest that was shown; another one is refused (409)"},
        },
        "decision",
    ),
}


LOOK_S: Final = 2.0  # how often a waiting client's approval is looked at even where nothing was heard of it
SCAN: Final = 200  # approvals read at once while a list is filtered
MAX_SCANNED: Final = 10_000  # approvals looked at for one page: a rare filter gives a short page and a cursor


_ID: Final = named("id of the approval")
_STATE: Final = Param(
    name="state",
    schema={"type": "string", "enum": [*STATES, "all"], "default": "pending"},
    text="in this state",
)


async def list_approvals(request: ApiRequest) -> Response:
    """Show the queue: pending approvals unless `state` asks for others."""
    return answer(await asyncio.to_thread(find_approvals, request.services, request.principal, request.query))


LIST_APPROVALS: Final = Endpoint(
    method="GET",
    path="/v1/approvals",
    operation="listApprovals",
    tag="approvals",
    summary="The queue of held calls; an agent sees the state of its own",
    permission=SEE_APPROVALS,
    handler=list_approvals,
    query=(_STATE, *exact("agent", "session", "tool"), LIMIT, CURSOR),
    replies=ok("one page, by id", "Approvals"),
)


async def get_approval(request: ApiRequest) -> Response:
    """Show one approval; with `wait`, as soon as it is not pending any more, or after that many seconds."""
    services, approval_id = request.services, request.path["id"]
    with services.waiting.watch(approval_id) as watched:
        deadline = asyncio.get_running_loop().time() + request.query.get("wait", 0)
        while True:
            left = deadline - asyncio.get_running_loop().time()
            last = left <= 0 or services.draining.is_set()
            approval = await asyncio.to_thread(visible_approval, services, request.principal, approval_id)
            if last or approval.state_at(services.clock()) != "pending":
                return answer(await asyncio.to_thread(show_approval, services, request.principal, approval))
            await watched.changed(min(left, LOOK_S, approval.seconds_left(services.clock())))


GET_APPROVAL: Final = Endpoint(
    method="GET",
    path="/v1/approvals/{id}",
    operation="getApproval",
    tag="approvals",
    summary="One held call; with `wait`, as soon as it is answered",
    permission=SEE_APPROVALS,
    handler=get_approval,
    path_params=_ID,
    query=(
        Param(
            name="wait",
            schema={"type": "integer", "minimum": 0, "maximum": MAX_WAIT_S, "default": 0},
            text="seconds to wait for an answer",
        ),
    ),
    waits=True,
    replies={
        **ok("the approval", "Approval"),
        **failing(s404="there is none that this credential may see", s429="too many requests of this key wait"),
    },
)


async def resolve_approval(request: ApiRequest) -> Response:
    """Approve or deny, once, by somebody who did not ask for the call."""
    services, given = request.services, answer_of(request.body)
    approval = await services.gate.aanswer(request.path["id"], given, principal=request.principal)
    return answer(await asyncio.to_thread(show_approval, services, request.principal, approval))


RESOLVE_APPROVAL: Final = Endpoint(
    method="POST",
    path="/v1/approvals/{id}",
    operation="resolveApproval",
    tag="approvals",
    summary="Approve or deny a held call, once",
    permission=RESOLVE,
    handler=resolve_approval,
    path_params=_ID,
    body=Body(schema=ref("Resolution")),
    replies={
        **ok("answered", "Approval"),
        **failing(
            s404="there is none",
            s409="answered or expired already, or not what was shown",
            s429="this person approved as many calls as one may in an hour",
        ),
    },
)


async def list_grants(request: ApiRequest) -> Response:
    """Show grants, revoked and expired ones included, by id."""
    return answer(await asyncio.to_thread(_grants, request))


LIST_GRANTS: Final = Endpoint(
    method="GET",
    path="/v1/grants",
    operation="listGrants",
    tag="approvals",
    summary="Grants: calls that people approved for the rest of a session",
    permission=SEE_GRANTS,
    handler=list_grants,
    query=(LIMIT, CURSOR),
    replies=ok("one page, by id", "Grants"),
)


async def revoke_grant(request: ApiRequest) -> Response:
    """Take a grant back; the next call asks a person again."""
    services, grant_id = request.services, request.path["id"]
    await services.gate.arecord(revoked(grant_id, by=request.principal.id, receipt_id=new_id()))
    return answer(await asyncio.to_thread(_grant, services, grant_id))


REVOKE_GRANT: Final = Endpoint(
    method="POST",
    path="/v1/grants/{id}/revoke",
    operation="revokeGrant",
    tag="approvals",
    summary="Take a grant back",
    permission=SEE_GRANTS,
    handler=revoke_grant,
    path_params=named("id of the grant"),
    replies={**ok("revoked", "Grant"), **failing(s404="there is none", s409="revoked already")},
)


def answer_of(body: dict[str, Any]) -> Answer:
    """Return the answer that a body of `RESOLVE_APPROVAL` spells."""
    return Answer(
        decision=body["decision"],
        reason=body.get("reason"),
        scope=body.get("scope", "once"),
        arguments=body.get("arguments"),
        call_digest=body.get("call_digest"),
        policy_digest=body.get("policy_digest"),
    )


def _grants(request: ApiRequest) -> dict[str, Any]:
    services, limit = request.services, request.query.get("limit", DEFAULT_LIMIT)
    after = place_of(request.query.get("cursor")) or ""
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


def find_approvals(services: Services, principal: Principal, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of the approvals that `principal` may see, by the parameters of `LIST_APPROVALS`."""
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
                if _matches(approval, query, now) and _may_see(principal, approval):
                    items.append(_shown(services, reader, principal, approval, now))
                    if len(items) == limit:
                        return page(items, after)
            scanned += len(documents)
            if len(documents) < SCAN:
                return page(items, None)
            if scanned >= MAX_SCANNED:
                return page(items, after)


def _matches(approval: Approval, query: Mapping[str, Any], now: int) -> bool:
    return query.get("state", "pending") in ("all", approval.state_at(now)) and all(
        name not in query or query[name] == getattr(approval, name) for name in ("agent", "session", "tool")
    )


def _may_see(principal: Principal, approval: Approval) -> bool:
    return "approver" in principal.roles or approval.principal == principal.id


def _shown(services: Services, reader: Reader, principal: Principal, approval: Approval, now: int) -> dict[str, Any]:
    if "approver" not in principal.roles:
        return status_view(approval, now=now)
    policy = services.policy.current
    rule = policy.approval_for(approval.server, approval.tool, approval.held_by)
    held = payload_of(services.gate.parts, reader, approval.decision_id)
    runs = running(services.gate.parts, reader, approval)
    return {
        **with_payload(approval_view(approval, now=now), held=held, runs=runs),
        "preview": preview_of(services.gate.parts, reader, approval),
        "may_answer": may_answer(principal, approval, rule, policy, now),
        "approvers": [list(rule.approvers), *(list(names) for names in rule.also)],
        "session_grant_seconds": rule.session_grant_seconds if approval.session else 0,
    }


def show_approval(services: Services, principal: Principal, approval: Approval) -> dict[str, Any]:
    """Return what `principal` sees of an approval now."""
    with services.store.reader() as reader:
        shown = _shown(services, reader, principal, approval, services.clock())
    if "approver" in principal.roles:
        found = alike(services, approval)
        if found.rule is not None:
            shown["alike"] = len(found.approved)
    return shown


def visible_approval(services: Services, principal: Principal, approval_id: str) -> Approval:
    """Return the approval; raises `InvalidCall` (404) for one that is not there, or that `principal` may not see."""
    with services.store.reader() as reader:
        approval = load(reader, approval_id)
    if not _may_see(principal, approval):  # the same answer as for one that does not exist
        raise InvalidCall("there is no such approval", code="not_found", status=404)
    return approval


# Held calls, and the live feed that tells of them.


ENDPOINTS: Final = (
    LIST_APPROVALS,
    GET_APPROVAL,
    RESOLVE_APPROVAL,
    PROPOSE_STANDING,
    WRITE_STANDING,
    LIST_GRANTS,
    REVOKE_GRANT,
)
