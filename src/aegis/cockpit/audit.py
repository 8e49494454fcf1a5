"""Audit: search over receipts, verification, checkpoints, exports and the report."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.responses import RedirectResponse, Response, StreamingResponse

from aegis.approvals.retention import Erased
from aegis.cockpit.page import PageRequest, filters, html, page
from aegis.cockpit.rows import row_of
from aegis.cockpit.work import MAX_DAYS
from aegis.core.breaks import MEANING
from aegis.core.outcome import Outcome, Reason
from aegis.core.receipt import KINDS
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall
from aegis.gate.repeat import erase_payload
from aegis.server.audit import LIST_RECEIPTS, export_log, find_receipts, key_document, signed_checkpoint
from aegis.server.http import answer
from aegis.server.validation import query_of

# Retention: the payloads of old calls are erased in steps, each on record; the receipts stay and still verify.


async def start(request: PageRequest) -> Response:
    """Erase what the form names, once its box is ticked."""
    form = request.form
    days = form.get("days", "")
    if form.get("sure") != "yes":
        raise InvalidCall("nothing was erased: the box was not ticked", hint="go back, and tick it")
    if not (days.isascii() and days.isdigit() and 1 <= int(days[:6]) <= MAX_DAYS):
        raise InvalidCall(f"the days must be from 1 to {MAX_DAYS}")
    told = Erased(days=int(days[:6]), agent=form.get("agent", "").strip(), tool=form.get("tool", "").strip())
    request.cockpit.retention.start(request.services, told, request.principal.id)
    return RedirectResponse("/audit#retention", 303)


async def cancel(request: PageRequest) -> Response:
    """Erase no more; what is erased stays erased."""
    request.cockpit.retention.job.cancel()
    return RedirectResponse("/audit#retention", 303)


LISTED: Final = "100"
FILTERS: Final = ("kind", "decision", "reason", "agent", "tool", "session", "principal", "call_id", "since", "until")
COLUMNS: Final = (
    "index", "time", "kind", "receipt_id", "agent", "principal", "session", "call_id", "tool", "decision", "verdict",
    "risk", "reason", "approval_id", "approvers", "policy_digest",
)  # fmt: skip
MAX_ROWS: Final = 1_000_000  # rows of one table: what a spreadsheet takes


async def audit(request: PageRequest) -> Response:
    """Show the search with its results, and where the log stands."""
    query = _query(request)
    problem, rows, following = None, [], None
    try:
        found = await _find(request, {**query, "limit": LISTED})
        rows, following = [row_of(receipt) for receipt in found["items"]], found["next"]
    except InvalidCall as refused:
        problem = refused
    note = (await asyncio.to_thread(signed_checkpoint, request.services)).decode()
    last = request.cockpit.verifications.last
    today = datetime.now(UTC).date()
    return html(
        request,
        "audit.html",
        200 if problem is None else problem.status,
        rows=rows,
        next=following,
        query={name: request.query.get(name, "") for name in FILTERS},
        links=[(name, value) for name, value in query.items() if name != "cursor"],
        problem=problem,
        note=note,
        size=int(note.split("\n")[1]),
        verification=last,
        meaning=MEANING.get(last.told.get("break", ""), ""),
        kinds=KINDS,
        retention=request.cockpit.retention.job.standing,
        erased=request.cockpit.retention.told,
        outcomes=[outcome.word for outcome in Outcome],
        reasons=[reason.value for reason in Reason],
        first=(today - timedelta(days=30)).isoformat(),
        today=today.isoformat(),
    )


async def verify(request: PageRequest) -> Response:
    """Begin to verify the whole log; the page says how it ends."""
    request.cockpit.verifications.start(request.principal.id)
    return RedirectResponse("/audit#verification", 303)


async def export_lines(request: PageRequest) -> Response:
    """`receipts.jsonl` of an offline verification: the API's own export."""
    return await export_log(request.services.store)


async def export_keys(request: PageRequest) -> Response:
    """`keys.json`; what it is worth depends on how a verifier got it."""
    found = await asyncio.to_thread(key_document, request.services.store)
    return answer(found, headers={"content-disposition": 'attachment; filename="keys.json"'})


async def export_checkpoint(request: PageRequest) -> Response:
    """Show the signed end of the log."""
    note = await asyncio.to_thread(signed_checkpoint, request.services)
    return Response(note, media_type="text/plain", headers={"content-disposition": 'attachment; filename="checkpoint"'})


async def export_table(request: PageRequest) -> Response:
    """Show what the search finds, as CSV (RFC 4180)."""
    query = _query(request)
    await _find(request, {**query, "limit": "1"})  # refuses before the answer begins
    return StreamingResponse(
        _rows(request, query),
        media_type="text/csv",
        headers={"content-disposition": 'attachment; filename="receipts.csv"'},
    )


async def report(request: PageRequest) -> Response:
    """Show the report of a period as PDF."""
    since, until = _day(request, "since"), _day(request, "until") + 24 * 3600 * MICROS - 1
    if until < since:
        raise InvalidCall("the period ends before it begins", hint="choose other days")
    data = await asyncio.to_thread(_report_of, request, since, until)
    name = f"aegis-report-{rfc3339(since)[:10]}-{rfc3339(until)[:10]}.pdf"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/pdf", headers=headers)


def _report_of(request: PageRequest, since: int, until: int) -> bytes:
    """The report as PDF; whatever makes it is loaded by the first who asks, since few gateways are ever asked."""
    from aegis.cockpit.report import compile_report, pdf

    note = signed_checkpoint(request.services)
    found = compile_report(request.services, since=since, until=until, verification=request.cockpit.verifications.last)
    return pdf(found, note=note.decode(), by=request.principal.id)


async def erase(request: PageRequest) -> Response:
    """Erase the payload of one receipt for good, on the record."""
    receipt_id = request.path["id"]
    if request.form.get("sure") != "yes":
        raise InvalidCall("nothing was erased: the box was not ticked", hint="go back, and tick it")
    await request.services.gate.arecord(erase_payload(receipt_id, principal=request.principal.id))
    return RedirectResponse(f"/calls/{receipt_id}", 303)


async def _find(request: PageRequest, query: dict[str, str]) -> dict[str, Any]:
    return await asyncio.to_thread(find_receipts, request.services, query_of(LIST_RECEIPTS, query))


def _query(request: PageRequest) -> dict[str, str]:
    found = {name: request.query[name].strip() for name in (*FILTERS, "cursor") if request.query.get(name, "").strip()}
    for name, end in (("since", "T00:00:00Z"), ("until", "T23:59:59.999999Z")):
        if len(found.get(name, "")) == 10:  # a day of a date field
            found[name] += end
    return found


async def _rows(request: PageRequest, query: dict[str, str]) -> AsyncIterator[bytes]:
    yield _line(COLUMNS)
    written = 0
    while written < MAX_ROWS:
        found = await _find(request, {**query, "limit": "1000"})
        yield b"".join(_line([receipt.get(name, "") for name in COLUMNS]) for receipt in found["items"])
        written += len(found["items"])
        if found["next"] is None:
            return
        query = {**query, "cursor": found["next"]}


def _line(values: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow([_cell(value) for value in values])
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    """Return one cell; a text that a spreadsheet would take for a formula is made plain (CWE-1236)."""
    text = " ".join(value) if isinstance(value, list) else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _day(request: PageRequest, name: str) -> int:
    try:
        found = datetime.fromisoformat(request.query.get(name, "")).replace(tzinfo=UTC)
    except ValueError as error:
        raise InvalidCall(f"`{name}` is not a day", hint="such as 2026-01-31") from error
    return int(found.timestamp()) * MICROS


PAGES: Final = (
    page("POST", "/calls/{id}/erase", erase, "admin"),
    page("GET", "/audit", audit, "auditor", query=filters(*FILTERS, "cursor")),
    page("POST", "/audit/verify", verify, "auditor"),
    page("POST", "/audit/retention", start, "admin"),
    page("POST", "/audit/retention/cancel", cancel, "admin"),
    page("GET", "/audit/receipts.jsonl", export_lines, "auditor"),
    page("GET", "/audit/receipts.csv", export_table, "auditor", query=filters(*FILTERS, "cursor")),
    page("GET", "/audit/keys.json", export_keys, "auditor"),
    page("GET", "/audit/checkpoint", export_checkpoint, "auditor"),
    page("GET", "/audit/report.pdf", report, "auditor", query=filters("since", "until")),
)
