"""Approvals: the queue, and one page for each held call on which a person decides."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import orjson
from starlette.responses import RedirectResponse, Response

from aegis.approvals.queue import find
from aegis.audit.writer import Unit
from aegis.core.ports import Reader, Search
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall
from aegis.gate.ids import new_id
from aegis.gate.repeat import load_payload
from aegis.server.cockpit import words
from aegis.server.cockpit.arguments import leaves
from aegis.server.cockpit.ask import ask
from aegis.server.cockpit.effect import MAX_FILES, changed_files, reach, sentence, touched
from aegis.server.cockpit.judging import runs
from aegis.server.cockpit.live import row_of
from aegis.server.cockpit.narrowing import narrowed, places
from aegis.server.cockpit.page import Visit
from aegis.server.cockpit.privacy import covered, private_texts
from aegis.server.cockpit.render import html

STATES: Final = ("pending", "approved", "denied", "expired", "cancelled", "redeemed")
FILTERS: Final = ("state", "agent", "tool", "session", "cursor")
SHOWN: Final = 200  # held calls on one page, most pressing first
PAST: Final = 8
_RISKS: Final = {"critical": 0, "high": 1, "medium": 2, "low": 3}


async def queue(visit: Visit) -> Response:
    """Held calls by risk, whether they can be undone, the minutes left, and how much they touched when tried."""
    await visit.cockpit.rollup.watched()
    query = {"state": "pending", "limit": str(SHOWN)}
    query |= {name: visit.query[name] for name in FILTERS if visit.query.get(name)}
    found = await ask(visit, "listApprovals", query=query)
    rows = await asyncio.to_thread(_rows, visit, found["items"])
    if query["state"] == "pending":
        rows.sort(key=_pressing)
    return html(
        visit, "approvals.html", rows=rows, state=query["state"], states=STATES, query=query, next=found["next"]
    )


def _pressing(row: dict[str, Any]) -> tuple[int, bool, str, int]:
    approval = row["approval"]
    minute = approval["expires_at"][:16]
    return _RISKS.get(row["risk"], 1), not row["irreversible"], minute, -reach(approval.get("preview") or {})


async def review(visit: Visit) -> Response:
    """One held call, with everything that a decision needs."""
    approval = await ask(visit, "getApproval", path={"id": visit.names["id"]})
    return await _review(visit, approval, problem=None, revealed=False)


async def reveal(visit: Visit) -> Response:
    """The same page with private values shown, which is recorded first."""
    approval = await ask(visit, "getApproval", path={"id": visit.names["id"]})
    draft = Draft(
        members={
            "kind": "access",
            "receipt_id": new_id(),
            "parent": approval["decision_id"],
            "principal": visit.principal.id,
            "action": "reveal",
        }
    )
    await visit.services.gate.arecord(Unit(drafts=(draft,)))
    return await _review(visit, approval, problem=None, revealed=True)


async def resolve(visit: Visit) -> Response:
    """The answer, bound to the digests that were shown; what is refused is said on the page."""
    approval_id, form = visit.names["id"], visit.form
    try:
        body: dict[str, Any] = {
            "decision": form.get("decision", ""),
            "call_digest": form.get("call_digest", ""),
            "policy_digest": form.get("policy_digest", ""),
        }
        if form.get("reason", "").strip():
            body["reason"] = form["reason"].strip()
        if form.get("scope") == "session" and body["decision"] == "approve":
            body["scope"] = "session"
        if body["decision"] == "less":
            held = await ask(visit, "getApproval", path={"id": approval_id})
            body |= {"decision": "approve", "arguments": narrowed(held.get("arguments"), form)}
        await ask(visit, "resolveApproval", path={"id": approval_id}, body=body)
    except InvalidCall as problem:
        if problem.status == 404:
            raise
        approval = await ask(visit, "getApproval", path={"id": approval_id})
        if problem.code == "not_pending" and approval["resolved_by"]:
            by, state = approval["resolved_by"], words.state(approval["state"])
            hint = f"the call is {state}" if state != "ran" else "the call was approved and has run"
            problem = InvalidCall(f"{by} has answered before you", code=problem.code, hint=hint, status=409)
        response = await _review(visit, approval, problem=problem, revealed=False)
        response.status_code = problem.status
        return response
    return RedirectResponse(f"/approvals/{approval_id}", 303)


async def _review(visit: Visit, approval: dict[str, Any], *, problem: InvalidCall | None, revealed: bool) -> Response:
    seen = await asyncio.to_thread(_details, visit, approval, revealed)
    arguments, findings = approval.get("arguments"), seen["findings"]
    hidden = seen.pop("hidden")
    preview = covered(approval.get("preview") or {}, hidden)
    approval = {**approval, "task": covered(approval.get("task"), hidden)}
    return html(
        visit,
        "approval.html",
        approval=approval,
        problem=problem,
        revealed=revealed,
        places=places(arguments, findings, hidden=hidden, form=visit.form),
        narrowing=visit.form.get("decision") == "less",
        given=visit.form.get("reason", ""),
        preview=preview,
        files=changed_files(preview),
        most=MAX_FILES,
        **seen,
    )


def _details(visit: Visit, approval: dict[str, Any], revealed: bool) -> dict[str, Any]:
    """What the log knows beside the approval: findings with their places, the session so far, past answers."""
    services = visit.services
    with services.store.reader() as reader:
        entry = reader.entry_by_id(approval["decision_id"])
        payload = None if entry is None else load_payload(services.gate.parts, reader, entry)[0]
        past = reader.search(Search(kind="approval", tool=approval["tool"], limit=PAST * 3))
        before = []
        if approval["session"] and entry is not None:
            same = Search(session=approval["session"], principal=approval["principal"], before=entry.index, limit=PAST)
            before = reader.search(same)
    receipt = {} if entry is None else orjson.loads(entry.body)
    findings = [] if payload is None else payload.get("findings", [])
    facts = _facts(approval, receipt)
    hidden = [] if revealed else private_texts(findings, approval.get("submitted"), services.policy.current.scanner)
    with services.store.reader() as reader:
        judged = runs(services.gate.parts, reader, receipt, hidden=hidden)
        answered = [
            _answer(reader, body)
            for body in (orjson.loads(row.body) for row in past)
            if body.get("action") in ("approved", "denied") and body.get("approval_id") != approval["id"]
        ][:PAST]
    facts["named"] = [replace(group, values=tuple(covered(group.values, hidden))) for group in facts["named"]]
    return {
        **facts,
        "hidden": hidden,
        "judged": judged,
        "leaves": leaves(approval.get("arguments") or {}, findings, hidden=hidden),
        "findings": findings,
        "before": [row_of(orjson.loads(row.body)) for row in reversed(before)],
        "past": answered,
    }


def _answer(reader: Reader, body: dict[str, Any]) -> dict[str, Any]:
    """One past answer, with the reason that was kept with it; it leads to the call that was answered."""
    kept = find(reader, body["approval_id"])
    return {
        **row_of(body),
        "approval": body["approval_id"],
        "action": body["action"],
        "approvers": body.get("approvers", []),
        "why": None if kept is None else kept.reason,
    }


def _rows(visit: Visit, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    with visit.services.store.reader() as reader:
        for approval in items:
            entry = reader.entry_by_id(approval["decision_id"])
            rows.append({"approval": approval, **_facts(approval, {} if entry is None else orjson.loads(entry.body))})
    return rows


def _facts(approval: dict[str, Any], receipt: dict[str, Any]) -> dict[str, Any]:
    """What is known of the effect: by the approval's own word, else by the receipt of the held call."""
    facts = approval.get("facts") or {}
    effects = facts.get("effects") or receipt.get("effects", [])
    rules = {rule for guard in receipt.get("guards", ()) for rule in guard["rules"]}
    irreversible = facts.get("irreversible", receipt.get("reason") == "irreversible" or "irreversible" in rules)
    arguments = approval.get("arguments")
    named = touched(approval["tool"], approval["server"], arguments, effects) if arguments else []
    return {
        "risk": facts.get("risk") or receipt.get("risk", "high"),
        "effects": effects,
        "irreversible": irreversible,
        "named": named,
        "sentence": sentence(approval, named, irreversible, effects),
        "why": approval.get("held_because") or receipt.get("reason", ""),
    }
