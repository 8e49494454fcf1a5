"""Approvals: the queue, and one page for each held call on which a person decides."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import orjson
from markupsafe import Markup
from msgspec import Struct, structs
from starlette.responses import RedirectResponse, Response

from aegis.approvals.always import WRITE_STANDING, proposed, write
from aegis.approvals.effect import MAX_FILES, changed_files, done_to, reach, sentence, touched
from aegis.approvals.queue import find
from aegis.approvals.routes import (
    LIST_APPROVALS,
    RESOLVE_APPROVAL,
    answer_of,
    find_approvals,
    show_approval,
    visible_approval,
)
from aegis.cockpit import text
from aegis.cockpit.editing import keep_text
from aegis.cockpit.page import PageRequest, filters, html, page
from aegis.cockpit.rows import Leaf, leaves, row_of
from aegis.cockpit.text import covered, private_texts
from aegis.config.text import text_in_force
from aegis.core.json import escape, parse
from aegis.core.ports import Reader, Search
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall
from aegis.gate.events import new_id
from aegis.gate.repeat import load_payload
from aegis.gate.view import told_origins
from aegis.judges.pages import runs
from aegis.log.writer import Unit
from aegis.server.validation import checked_body, query_of

# Approving with less: which places of the arguments can be left out or made smaller, and what is asked then.
#
# A form names places and carries what a person typed, never a value of the call: a page holds nothing that it
# masks, and a mask is never sent back in place of a value.

MAX_PLACES: Final = 250  # places that one form offers: each is two fields, and forms are bounded
MAX_TYPED_CHARS: Final = 500  # text that can be typed anew in one line
DROP: Final = "drop-"
TYPED: Final = "new-"


class ArgumentPlace(Struct, frozen=True, kw_only=True):
    """One value that can be left out: an item, a member, or everything below one.

    `id` stands for the pointer in a form. `inside` counts the values of a container. `kind` is `text` or
    `number` where another value can be typed, else empty; `dropped` and `typed` are what the form said.
    """

    id: str
    pointer: str
    name: str
    depth: int
    html: Markup | None
    inside: int
    kind: str
    dropped: bool
    typed: str


def places(
    arguments: Any, findings: Sequence[Mapping[str, Any]], *, hidden: Sequence[str], form: Mapping[str, str]
) -> list[ArgumentPlace] | None:
    """Return the places of the arguments, the texts of `hidden` masked; `None` where a form cannot hold them."""
    if not isinstance(arguments, dict):
        return None
    found = list(islice(_walk("", arguments), MAX_PLACES + 1))
    if len(found) > MAX_PLACES:
        return None
    shown = {leaf.pointer: leaf for leaf in leaves(arguments, findings, hidden=hidden)}
    return [_place(pointer, value, shown.get(pointer), form) for pointer, value in found]


def narrowed(arguments: Any, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments without what the form drops, and with what it types.

    Raises `InvalidCall` where nothing changes, a number is none (422, naming the place), or the form names a
    place that the call does not have (409).
    """
    if not isinstance(arguments, dict):
        raise InvalidCall("the call was erased, so it cannot be narrowed", code="erased", status=409)
    dropped = {name.removeprefix(DROP) for name in form if name.startswith(DROP)}
    typed = {name.removeprefix(TYPED): text for name, text in form.items() if name.startswith(TYPED) and text.strip()}
    known = {_id(pointer): (pointer, value) for pointer, value in islice(_walk("", arguments), MAX_PLACES)}
    if not (dropped | typed.keys()) <= known.keys():
        raise InvalidCall(
            "what was shown is not what is held", code="conflict", hint="look at the call again", status=409
        )
    if not dropped and not typed:
        raise InvalidCall(
            "nothing was left out or made smaller", code="not_narrower", hint="mark a value, or approve the call whole"
        )
    without = {known[one][0] for one in dropped}
    instead = {known[one][0]: _typed(*known[one], text) for one, text in typed.items()}
    less: dict[str, Any] = _less("", arguments, without, instead)
    return less


def _walk(pointer: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return every member and item, each container before what is in it."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in steps:
        below = f"{pointer}/{escape(str(key))}"
        yield below, item
        yield from _walk(below, item)


def _less(pointer: str, value: Any, without: set[str], instead: Mapping[str, Any]) -> Any:
    if pointer in instead:
        return instead[pointer]
    if isinstance(value, dict):
        inner = ((key, f"{pointer}/{escape(key)}", item) for key, item in value.items())
        return {key: _less(below, item, without, instead) for key, below, item in inner if below not in without}
    if isinstance(value, list):
        items = ((f"{pointer}/{at}", item) for at, item in enumerate(value))
        return [_less(below, item, without, instead) for below, item in items if below not in without]
    return value


def _place(pointer: str, value: Any, leaf: Leaf | None, form: Mapping[str, str]) -> ArgumentPlace:
    own = _id(pointer)
    return ArgumentPlace(
        id=own,
        pointer=pointer,
        name=pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~"),
        depth=min(pointer.count("/") - 1, 4),
        html=None if leaf is None else leaf.html,
        inside=len(value) if isinstance(value, dict | list) else 0,
        kind=_kind(value),
        dropped=DROP + own in form,
        typed=form.get(TYPED + own, ""),
    )


def _kind(value: Any) -> str:
    """Return what can be typed in place of a value: a text of one line, a number, or nothing."""
    if isinstance(value, str):
        return "text" if len(value) <= MAX_TYPED_CHARS and "\n" not in value and "\r" not in value else ""
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _typed(pointer: str, value: Any, text: str) -> Any:
    kind = _kind(value)
    if kind == "text" and len(text) <= MAX_TYPED_CHARS:
        return text
    if kind == "number":
        try:
            number = parse(text.strip().encode())
        except InvalidCall as error:
            raise InvalidCall(f"what was typed at `{pointer}` is not a number") from error
        if isinstance(number, int | float) and not isinstance(number, bool):
            return number
    raise InvalidCall(f"what was typed at `{pointer}` is not a {kind or 'value that can be typed'}")


def _id(pointer: str) -> str:
    """Return a name of a form's field for a place, whatever its keys hold."""
    return hashlib.sha256(pointer.encode()).hexdigest()[:20]


STATES: Final = ("pending", "approved", "denied", "expired", "cancelled", "redeemed")
FILTERS: Final = ("state", "agent", "tool", "session", "cursor")
SCOPES: Final = ("session", "document", "deed")  # that a form may ask for beside this one call
SHOWN: Final = 200  # held calls on one page, most pressing first
PAST: Final = 8
_RISKS: Final = {"critical": 0, "high": 1, "medium": 2, "low": 3}


async def queue(request: PageRequest) -> Response:
    """Held calls by risk, whether they can be undone, the minutes left, and how much they touched when tried."""
    await request.cockpit.rollup.watched()
    query = {"state": "pending", "limit": str(SHOWN)}
    query |= {name: request.query[name] for name in FILTERS if request.query.get(name)}
    wanted = query_of(LIST_APPROVALS, query)
    found = await asyncio.to_thread(find_approvals, request.services, request.principal, wanted)
    rows = await asyncio.to_thread(_rows, request, found["items"])
    if query["state"] == "pending":
        rows.sort(key=_pressing)
    return html(
        request, "approvals.html", rows=rows, state=query["state"], states=STATES, query=query, next=found["next"]
    )


def _pressing(row: dict[str, Any]) -> tuple[int, bool, str, int]:
    approval = row["approval"]
    minute = approval["expires_at"][:16]
    return _RISKS.get(row["risk"], 1), not row["irreversible"], minute, -reach(approval.get("preview") or {})


async def review(request: PageRequest) -> Response:
    """Show one held call, with everything that a decision needs."""
    approval = await asyncio.to_thread(_approval, request, request.path["id"])
    return await _review(request, approval, problem=None, revealed=False)


async def reveal(request: PageRequest) -> Response:
    """Show the same page with private values shown, which is recorded first."""
    approval = await asyncio.to_thread(_approval, request, request.path["id"])
    draft = Draft(
        members={
            "kind": "access",
            "receipt_id": new_id(),
            "parent": approval["decision_id"],
            "principal": request.principal.id,
            "action": "reveal",
        }
    )
    await request.services.gate.arecord(Unit(drafts=(draft,)))
    return await _review(request, approval, problem=None, revealed=True)


async def resolve(request: PageRequest) -> Response:
    """Answer the held call, bound to the digests that were shown; what is refused is said on the page."""
    approval_id, form = request.path["id"], request.form
    try:
        body: dict[str, Any] = {
            "decision": form.get("decision", ""),
            "call_digest": form.get("call_digest", ""),
            "policy_digest": form.get("policy_digest", ""),
        }
        if form.get("reason", "").strip():
            body["reason"] = form["reason"].strip()
        if form.get("scope") in SCOPES and body["decision"] == "approve":
            body["scope"] = form["scope"]
        if body["decision"] == "less":
            held = await asyncio.to_thread(_approval, request, approval_id)
            body |= {"decision": "approve", "arguments": narrowed(held.get("arguments"), form)}
        given = answer_of(checked_body(RESOLVE_APPROVAL, body))
        await request.services.gate.aanswer(approval_id, given, principal=request.principal)
    except InvalidCall as problem:
        if problem.status == 404:
            raise
        approval = await asyncio.to_thread(_approval, request, approval_id)
        if problem.code == "not_pending" and approval["resolved_by"]:
            by, state = approval["resolved_by"], text.state(approval["state"])
            hint = f"the call is {state}" if state != "ran" else "the call was approved and has run"
            problem = InvalidCall(f"{by} has answered before you", code=problem.code, hint=hint, status=409)
        response = await _review(request, approval, problem=problem, revealed=False)
        response.status_code = problem.status
        return response
    return RedirectResponse(f"/approvals/{approval_id}", 303)


async def always(request: PageRequest) -> Response:
    """Show the standing approval that the answers to such calls propose, and what it would have let through."""
    return await _always(request, problem=None)


async def write_always(request: PageRequest) -> Response:
    """Put in force what was shown; what is refused is said on the page."""
    form, policy = request.form, request.services.policy
    days = form.get("days", "")
    try:
        body: dict[str, Any] = {"digest": form.get("digest", ""), "reason": form.get("reason", "").strip()}
        body["days"] = int(days[:4]) if days.isascii() and days.isdigit() else 0
        given = checked_body(WRITE_STANDING, body) | {"by": request.principal.id}
        before = await asyncio.to_thread(text_in_force, policy)
        changed = await asyncio.to_thread(write, request.services, request.path["id"], given)
        after = await asyncio.to_thread(text_in_force, policy)
    except InvalidCall as problem:
        if problem.status == 404:
            raise
        response = await _always(request, problem=problem)
        response.status_code = problem.status
        return response
    await asyncio.to_thread(keep_text, request.services, changed["before"], before)
    await asyncio.to_thread(keep_text, request.services, changed["digest"], after)
    return RedirectResponse("/policies?done=1", 303)


async def _always(request: PageRequest, *, problem: InvalidCall | None) -> Response:
    told = await asyncio.to_thread(proposed, request.services, request.path["id"])
    given = request.form.get("reason", "")
    return html(request, "always.html", approval=request.path["id"], told=told, problem=problem, given=given)


async def _review(
    request: PageRequest, approval: dict[str, Any], *, problem: InvalidCall | None, revealed: bool
) -> Response:
    seen = await asyncio.to_thread(_details, request, approval, revealed)
    arguments, findings = approval.get("arguments"), seen["findings"]
    hidden = seen.pop("hidden")
    preview = covered(approval.get("preview") or {}, hidden)
    approval = {**approval, "task": covered(approval.get("task"), hidden)}
    return html(
        request,
        "approval.html",
        approval=approval,
        problem=problem,
        revealed=revealed,
        places=places(arguments, findings, hidden=hidden, form=request.form),
        narrowing=request.form.get("decision") == "less",
        given=request.form.get("reason", ""),
        preview=preview,
        files=changed_files(preview),
        most=MAX_FILES,
        **seen,
    )


def _approval(request: PageRequest, approval_id: str) -> dict[str, Any]:
    found = visible_approval(request.services, request.principal, approval_id)
    return show_approval(request.services, request.principal, found)


def _details(request: PageRequest, approval: dict[str, Any], revealed: bool) -> dict[str, Any]:
    """Return what the log knows beside the approval: findings with their places, the session so far, past answers."""
    services = request.services
    with services.store.reader() as reader:
        entry = reader.entry_by_id(approval["decision_id"])
        payload = None if entry is None else load_payload(services.gate.parts, reader, entry)[0]
        past = reader.search(Search(kind="approval", tool=approval["tool"], limit=PAST * 3))
        findings = [
            {**one, "message": told_origins(reader, approval["session"], one.get("origins", ())) or one["message"]}
            for one in ([] if payload is None else payload.get("findings", []))
        ]
        before = []
        if approval["session"] and entry is not None:
            same = Search(session=approval["session"], principal=approval["principal"], before=entry.index, limit=PAST)
            before = reader.search(same)
    receipt = {} if entry is None else orjson.loads(entry.body)
    facts = _facts(approval, receipt)
    hidden = [] if revealed else private_texts(findings, approval.get("submitted"), services.policy.current.scanner)
    with services.store.reader() as reader:
        judged = runs(services.gate.parts, reader, receipt, hidden=hidden)
        answered = [
            _answer(reader, body)
            for body in (orjson.loads(row.body) for row in past)
            if body.get("action") in ("approved", "denied") and body.get("approval_id") != approval["id"]
        ][:PAST]
    facts["named"] = [structs.replace(group, values=tuple(covered(group.values, hidden))) for group in facts["named"]]
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
    """Return one past answer, with the reason that was kept with it; it leads to the call that was answered."""
    kept = find(reader, body["approval_id"])
    return {
        **row_of(body),
        "approval": body["approval_id"],
        "action": body["action"],
        "approvers": body.get("approvers", []),
        "why": None if kept is None else kept.reason,
    }


def _rows(request: PageRequest, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    with request.services.store.reader() as reader:
        for approval in items:
            entry = reader.entry_by_id(approval["decision_id"])
            rows.append({"approval": approval, **_facts(approval, {} if entry is None else orjson.loads(entry.body))})
    return rows


def _facts(approval: dict[str, Any], receipt: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of the effect: by the approval's own word, else by the receipt of the held call."""
    facts = approval.get("facts") or {}
    effects = facts.get("effects") or receipt.get("effects", [])
    rules = {rule for guard in receipt.get("guards", ()) for rule in guard["rules"]}
    irreversible = facts.get("irreversible", receipt.get("reason") == "irreversible" or "irreversible" in rules)
    arguments = approval.get("arguments")
    named = touched(approval["tool"], approval["server"], arguments, effects) if arguments else []
    deeds = done_to(approval["tool"], approval["server"], arguments) if arguments else []
    return {
        "risk": facts.get("risk") or receipt.get("risk", "high"),
        "effects": effects,
        "irreversible": irreversible,
        "named": named,
        "sentence": sentence(approval, named, irreversible, effects, deeds),
        "why": approval.get("held_because") or receipt.get("reason", ""),
    }


PAGES: Final = (
    page("GET", "/approvals", queue, "approver", query=filters(*FILTERS)),
    page("GET", "/approvals/{id}", review, "approver"),
    page("POST", "/approvals/{id}", resolve, "approver"),
    page("POST", "/approvals/{id}/reveal", reveal, "approver"),
    page("GET", "/approvals/{id}/always", always, "approver"),
    page("POST", "/approvals/{id}/always", write_always, "admin"),
)
