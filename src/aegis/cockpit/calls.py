"""Call detail: everything that one receipt knows, and the proof that it is in the log."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson
from msgspec import structs
from starlette.responses import Response

from aegis.cockpit.page import PageRequest, filters, html, page
from aegis.cockpit.rows import leaves, row_of
from aegis.core.outcome import outcome_of
from aegis.core.ports import Entry, Reader, Search
from aegis.errors import InvalidCall
from aegis.judges.pages import runs
from aegis.server.audit import prove_consistency, prove_inclusion, show_receipt, signed_checkpoint
from aegis.server.http import answer

AROUND: Final = 5  # receipts of the same session on either side
FOLLOWING: Final = 50
STRETCH: Final = 500  # leaves that are looked at for what came next


async def call(request: PageRequest) -> Response:
    """Show the page of one receipt, its payload masked."""
    return await _shown(request, reveal=False)


async def reveal(request: PageRequest) -> Response:
    """Show the page with its payload unmasked, which is recorded first."""
    return await _shown(request, reveal=True)


async def leaf(request: PageRequest) -> Response:
    """Show the receipt as the log holds it, byte by byte: what a browser hashes."""
    entry = await asyncio.to_thread(_entry, request, request.path["id"])
    return Response(entry.body, media_type="application/octet-stream")


async def proof(request: PageRequest) -> Response:
    """Show a checkpoint, the path from this receipt to it, and the path from an earlier one where `first` names it."""
    entry = await asyncio.to_thread(_entry, request, request.path["id"])
    note = (await asyncio.to_thread(signed_checkpoint, request.services)).decode()
    size, store = int(note.split("\n")[1]), request.services.store
    path = await asyncio.to_thread(prove_inclusion, store, entry.index, size)
    found: dict[str, Any] = {"note": note, "inclusion": path, "consistency": None}
    first = request.query.get("first", "")
    if first.isascii() and first.isdigit() and int(first) <= size:
        found["consistency"] = await asyncio.to_thread(prove_consistency, store, int(first), size)
    return answer(found)


async def log_key(request: PageRequest) -> Response:
    """Show the log's public key, which a browser keeps from the first time on."""
    return answer({"log": request.services.log, "public": request.services.log_signer().public.hex()})


async def _shown(request: PageRequest, *, reveal: bool) -> Response:
    receipt_id = request.path["id"]
    found = await show_receipt(request.services, receipt_id, by=request.principal.id, reveal=reveal)
    around = await asyncio.to_thread(_around, request, found["receipt"])
    judged = await asyncio.to_thread(_judged, request, found["receipt"], reveal)
    payload = found["payload"] or {}
    receipt = found["receipt"]
    # Masked evidence marks nothing: where it stands shows once the values do.
    findings = [one if reveal else {**one, "evidence": ""} for one in payload.get("findings", ())]
    return html(
        request,
        "call.html",
        receipt=receipt,
        row=row_of(receipt),
        payload=payload,
        erased=found["payload"] is None and "payload_commitment" in receipt,
        revealed=found["revealed"],
        arguments=leaves(payload.get("arguments", {}), findings),
        patched=leaves(payload["patched"]) if "patched" in payload else None,
        result=leaves(payload["result"], findings) if "result" in payload else None,
        steps=_steps(receipt, payload),
        judged=judged,
        raw=orjson.dumps(receipt, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode(),
        leaf_hash=found["leaf_hash"],
        **around,
    )


def _steps(receipt: dict[str, Any], payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the decision path: every guard, what it demanded, how long it took, and whether it decided the outcome."""
    times = {row[0]: row[2] for row in payload.get("guards", ())}
    longest = max([*times.values(), 1])
    decided = receipt.get("decision", "allow")
    return [
        {
            "guard": guard["guard"],
            "outcome": guard["outcome"],
            "rules": guard["rules"],
            "us": times.get(guard["guard"]),
            "width": round(100 * times.get(guard["guard"], 0) / longest, 1),
            "decided": decided != "allow" and guard["outcome"] == decided,
        }
        for guard in receipt.get("guards", ())
    ]


def _judged(request: PageRequest, receipt: dict[str, Any], reveal: bool) -> list[dict[str, Any]]:
    """Return the runs of judges; what they wrote may quote the call, and is shown with its values."""
    with request.services.store.reader() as reader:
        return runs(request.services.gate.parts, reader, receipt, hidden=[] if reveal else None)


def _around(request: PageRequest, receipt: dict[str, Any]) -> dict[str, Any]:
    with request.services.store.reader() as reader:
        following = reader.search(Search(parent=receipt["receipt_id"], limit=FOLLOWING))
        parent = reader.entry_by_id(receipt["parent"]) if receipt.get("parent") else None
        before: list[Entry] = []
        after: list[Entry] = []
        if receipt.get("session"):
            same = Search(session=receipt["session"], principal=receipt["principal"])
            before = reader.search(structs.replace(same, before=receipt["index"], limit=AROUND))
            after = _next(reader, receipt["index"], same)
    seen = {entry.index for entry in following}
    return {
        "parent": None if parent is None else row_of(orjson.loads(parent.body)),
        "following": [row_of(orjson.loads(entry.body)) for entry in following],
        "before": [row_of(orjson.loads(entry.body)) for entry in reversed(before)],
        "after": [row_of(orjson.loads(entry.body)) for entry in after if entry.index not in seen],
        "strongest": max((outcome_of(guard["outcome"]) for guard in receipt.get("guards", ())), default=None),
    }


def _next(reader: Reader, index: int, same: Search) -> list[Entry]:
    """Return the next receipts of the session, looked for in a bounded stretch of the log."""
    found = reader.search(structs.replace(same, before=index + STRETCH, limit=STRETCH))
    return [entry for entry in reversed(found) if entry.index > index][:AROUND]


def _entry(request: PageRequest, receipt_id: str) -> Entry:
    with request.services.store.reader() as reader:
        entry = reader.entry_by_id(receipt_id)
    if entry is None:
        raise InvalidCall("there is no such receipt", code="not_found", status=404)
    return entry


PAGES: Final = (
    page("GET", "/log-key", log_key, "auditor"),
    page("GET", "/calls/{id}", call, "auditor"),
    page("POST", "/calls/{id}/reveal", reveal, "auditor"),
    page("GET", "/calls/{id}/leaf", leaf, "auditor"),
    page("GET", "/calls/{id}/proof", proof, "auditor", query=filters("first")),
)
