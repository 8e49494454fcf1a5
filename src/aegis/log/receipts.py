"""`GET /v1/receipts` and `/v1/receipts/{id}`: searching the log, and one receipt with its payload."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson
from starlette.responses import Response

from aegis.core.decision import finding_to_wire
from aegis.core.ports import Entry, Search
from aegis.core.receipt import Draft
from aegis.core.text import mask_value
from aegis.core.times import from_rfc3339
from aegis.errors import InvalidCall
from aegis.gate.events import new_id
from aegis.gate.record import findings_of
from aegis.gate.repeat import load_payload
from aegis.log.writer import Unit
from aegis.server.endpoint import Asked
from aegis.server.http import DEFAULT_LIMIT, answer, index_of, page
from aegis.server.services import Services

# What the gateway signs about its own log: the summary of a session, and one receipt in one of two views.


async def attest_session(asked: Asked) -> Response:
    """The signed summary of one session: an agent's own, or any that an auditor names."""
    gate = asked.services.gate
    token = await asyncio.to_thread(
        gate.attest_session, asked.path["id"], principal=asked.principal, whose=asked.query.get("principal")
    )
    return answer({"session": asked.path["id"], "attestation": token})


async def project_receipt(asked: Asked) -> Response:
    """One receipt as a signed projection; the audit view is for auditors."""
    gate, view = asked.services.gate, asked.query.get("view", "public")
    token = await asyncio.to_thread(gate.project, asked.path["id"], view, principal=asked.principal)
    return answer({"receipt_id": asked.path["id"], "view": view, "projection": token})


# Receipts and payloads as auditors see them: masked unless they were asked to be revealed.

# What a payload says that no caller wrote, or that the receipt beside it says too.
_PLAIN: Final = frozenset({"tool", "server", "guards", "approval", "action"})
# A digest without salt of a short argument is found by trying: it is shown with the argument or not at all.
_DIGESTS: Final = frozenset({"request_digest", "call_digest", "digest"})
_HIDDEN: Final = frozenset({"epoch"})


def summary(body: dict[str, Any]) -> dict[str, Any]:
    """A receipt without its signature, for lists and events."""
    return {name: value for name, value in body.items() if name != "sig"}


def payload_view(payload: dict[str, Any], *, reveal: bool) -> dict[str, Any]:
    """The decrypted payload of a receipt, masked unless `reveal`."""
    view: dict[str, Any] = {}
    for name, value in payload.items():
        if name in _HIDDEN or (name in _DIGESTS and not reveal):
            continue
        if name == "findings":
            view[name] = [finding_to_wire(finding, reveal=reveal) for finding in findings_of(payload)]
        elif reveal or name in _PLAIN:
            view[name] = value
        else:
            view[name] = mask_value(value)
    return view


_FILTERS = ("kind", "principal", "agent", "session", "call_id", "tool", "decision", "reason", "parent")


async def list_receipts(asked: Asked) -> Response:
    """Receipts that match every filter, newest first."""
    query = asked.query
    limit = query.get("limit", DEFAULT_LIMIT)
    search = Search(
        **{name: query[name] for name in _FILTERS if name in query},
        since=moment(query, "since"),
        until=moment(query, "until"),
        before=index_of(query.get("cursor")),
        limit=limit,
    )
    entries = await asyncio.to_thread(_search, asked.services, search)
    return answer(listed(entries, limit))


async def get_receipt(asked: Asked) -> Response:
    """One receipt; `reveal=true` shows its payload unmasked, and is itself recorded first."""
    services, reveal = asked.services, asked.query.get("reveal", False)
    entry, payload = await asyncio.to_thread(_detail, services, asked.path["id"])
    if reveal and payload is not None:
        await services.gate.arecord(Unit(drafts=(_access(entry, asked.principal.id),)))
    return answer(
        {
            "receipt": orjson.loads(entry.body),
            "leaf_hash": entry.leaf_hash.hex(),
            "payload": None if payload is None else payload_view(payload, reveal=reveal),
            "revealed": bool(reveal and payload is not None),
        }
    )


def listed(entries: list[Entry], limit: int) -> dict[str, Any]:
    """One page of receipts, with the cursor of the next where this one is full."""
    following = entries[-1].index if len(entries) == limit else None
    return page([summary(orjson.loads(entry.body)) for entry in entries], following)


def moment(query: Any, name: str) -> int | None:
    """The time of a parameter in microseconds since the epoch; raises `InvalidCall` where it is none."""
    text = query.get(name)
    if text is None:
        return None
    try:
        return from_rfc3339(text)
    except (ValueError, OverflowError) as error:
        raise InvalidCall(f"`{name}` is not an RFC 3339 time", hint="such as 2026-01-02T03:04:05Z") from error


def _search(services: Services, search: Search) -> list[Entry]:
    with services.store.reader() as reader:
        return reader.search(search)


def _detail(services: Services, receipt_id: str) -> tuple[Entry, dict[str, Any] | None]:
    with services.store.reader() as reader:
        entry = reader.entry_by_id(receipt_id)
        if entry is None:
            raise InvalidCall("there is no such receipt", code="not_found", status=404)
        payload, _ = load_payload(services.gate.parts, reader, entry)
    return entry, payload


def _access(entry: Entry, principal: str) -> Draft:
    return Draft(
        members={
            "kind": "access",
            "receipt_id": new_id(),
            "parent": entry.receipt_id,
            "principal": principal,
            "action": "reveal",
        }
    )
