"""Audit: search over receipts, verification, checkpoints, exports and the report."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.responses import RedirectResponse, Response, StreamingResponse

from aegis.cockpit.page import Visit, ask, html
from aegis.cockpit.report import compile_report, pdf
from aegis.cockpit.rows import row_of
from aegis.cockpit.work import MAX_DAYS, Erased
from aegis.core.breaks import MEANING
from aegis.core.outcome import Outcome, Reason
from aegis.core.receipt import KINDS
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall
from aegis.gate.repeat import erase_payload

# Retention: the payloads of old calls are erased in steps, each on record; the receipts stay and still verify.


async def start(visit: Visit) -> Response:
    """Erase what the form names, once its box is ticked."""
    form = visit.form
    days = form.get("days", "")
    if form.get("sure") != "yes":
        raise InvalidCall("nothing was erased: the box was not ticked", hint="go back, and tick it")
    if not (days.isascii() and days.isdigit() and 1 <= int(days[:6]) <= MAX_DAYS):
        raise InvalidCall(f"the days must be from 1 to {MAX_DAYS}")
    told = Erased(days=int(days[:6]), agent=form.get("agent", "").strip(), tool=form.get("tool", "").strip())
    visit.cockpit.retention.start(visit.services, told, visit.principal.id)
    return RedirectResponse("/audit#retention", 303)


async def cancel(visit: Visit) -> Response:
    """Erase no more; what is erased stays erased."""
    visit.cockpit.retention.job.cancel()
    return RedirectResponse("/audit#retention", 303)


LISTED: Final = "100"
FILTERS: Final = ("kind", "decision", "reason", "agent", "tool", "session", "principal", "call_id", "since", "until")
COLUMNS: Final = (
    "index", "time", "kind", "receipt_id", "agent", "principal", "session", "call_id", "tool", "decision", "verdict",
    "risk", "reason", "approval_id", "approvers", "policy_digest",
)  # fmt: skip
MAX_ROWS: Final = 1_000_000  # rows of one table: what a spreadsheet takes


async def audit(visit: Visit) -> Response:
    """The search with its results, and where the log stands."""
    query = _query(visit)
    problem, rows, following = None, [], None
    try:
        found = await ask(visit, "listReceipts", query={**query, "limit": LISTED})
        rows, following = [row_of(receipt) for receipt in found["items"]], found["next"]
    except InvalidCall as refused:
        problem = refused
    note = (await ask(visit, "getCheckpoint")).decode()
    last = visit.cockpit.verifications.last
    today = datetime.now(UTC).date()
    return html(
        visit,
        "audit.html",
        200 if problem is None else problem.status,
        rows=rows,
        next=following,
        query={name: visit.query.get(name, "") for name in FILTERS},
        links=[(name, value) for name, value in query.items() if name != "cursor"],
        problem=problem,
        note=note,
        size=int(note.split("\n")[1]),
        verification=last,
        meaning=MEANING.get(last.told.get("break", ""), ""),
        kinds=KINDS,
        retention=visit.cockpit.retention.job.standing,
        erased=visit.cockpit.retention.told,
        outcomes=[outcome.word for outcome in Outcome],
        reasons=[reason.value for reason in Reason],
        first=(today - timedelta(days=30)).isoformat(),
        today=today.isoformat(),
    )


async def verify(visit: Visit) -> Response:
    """Begin to verify the whole log; the page says how it ends."""
    visit.cockpit.verifications.start(visit.principal.id)
    return RedirectResponse("/audit#verification", 303)


async def export_lines(visit: Visit) -> Response:
    """`receipts.jsonl` of an offline verification: the API's own export."""
    from aegis.server.audit import export
    from aegis.server.endpoint import Asked

    asked = Asked(
        services=visit.services, principal=visit.principal, request_id=visit.request_id, path={}, query={}, headers={}
    )
    return await export(asked)


async def export_keys(visit: Visit) -> Response:
    """`keys.json`; what it is worth depends on how a verifier got it."""
    found = await ask(visit, "exportKeys")
    from aegis.server.http import answer

    return answer(found, headers={"content-disposition": 'attachment; filename="keys.json"'})


async def export_checkpoint(visit: Visit) -> Response:
    """The signed end of the log."""
    note = await ask(visit, "getCheckpoint")
    return Response(note, media_type="text/plain", headers={"content-disposition": 'attachment; filename="checkpoint"'})


async def export_table(visit: Visit) -> Response:
    """What the search finds, as CSV (RFC 4180)."""
    query = _query(visit)
    await ask(visit, "listReceipts", query={**query, "limit": "1"})  # refuses before the answer begins
    return StreamingResponse(
        _rows(visit, query),
        media_type="text/csv",
        headers={"content-disposition": 'attachment; filename="receipts.csv"'},
    )


async def report(visit: Visit) -> Response:
    """The report of a period as PDF."""
    since, until = _day(visit, "since"), _day(visit, "until") + 24 * 3600 * MICROS - 1
    if until < since:
        raise InvalidCall("the period ends before it begins", hint="choose other days")
    note = await ask(visit, "getCheckpoint")
    found = await asyncio.to_thread(
        compile_report, visit.services, since=since, until=until, verification=visit.cockpit.verifications.last
    )
    data = await asyncio.to_thread(pdf, found, note=note.decode(), by=visit.principal.id)
    name = f"aegis-report-{rfc3339(since)[:10]}-{rfc3339(until)[:10]}.pdf"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/pdf", headers=headers)


async def erase(visit: Visit) -> Response:
    """Erase the payload of one receipt for good, on the record."""
    receipt_id = visit.names["id"]
    if visit.form.get("sure") != "yes":
        raise InvalidCall("nothing was erased: the box was not ticked", hint="go back, and tick it")
    await visit.services.gate.arecord(erase_payload(receipt_id, principal=visit.principal.id))
    return RedirectResponse(f"/calls/{receipt_id}", 303)


def _query(visit: Visit) -> dict[str, str]:
    found = {name: visit.query[name].strip() for name in (*FILTERS, "cursor") if visit.query.get(name, "").strip()}
    for name, end in (("since", "T00:00:00Z"), ("until", "T23:59:59.999999Z")):
        if len(found.get(name, "")) == 10:  # a day of a date field
            found[name] += end
    return found


async def _rows(visit: Visit, query: dict[str, str]) -> AsyncIterator[bytes]:
    yield _line(COLUMNS)
    written = 0
    while written < MAX_ROWS:
        found = await ask(visit, "listReceipts", query={**query, "limit": "1000"})
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
    """One cell; a text that a spreadsheet would take for a formula is made plain (CWE-1236)."""
    text = " ".join(value) if isinstance(value, list) else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _day(visit: Visit, name: str) -> int:
    try:
        found = datetime.fromisoformat(visit.query.get(name, "")).replace(tzinfo=UTC)
    except ValueError as error:
        raise InvalidCall(f"`{name}` is not a day", hint="such as 2026-01-31") from error
    return int(found.timestamp()) * MICROS
