"""The log for those who audit it: receipts, attestations, checkpoints, proofs, export, and the public keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
from starlette.responses import Response, StreamingResponse

from aegis.core.ports import Entry, Head, Search, Store
from aegis.core.receipt import MEMBERS, Draft
from aegis.core.times import from_rfc3339
from aegis.errors import InvalidCall
from aegis.gate.events import new_id
from aegis.gate.repeat import load_payload
from aegis.gate.view import payload_view, summary
from aegis.log.checkpoint import checkpoint_of, sign_checkpoint
from aegis.log.merkle import consistency_proof, inclusion_proof, root_at
from aegis.log.trust import jwks as key_set
from aegis.log.trust import public_keys
from aegis.log.writer import Unit
from aegis.server.admission import ANYBODY, ATTEST, AUDIT
from aegis.server.endpoint import ApiRequest, Endpoint, Param, Reply
from aegis.server.http import DEFAULT_LIMIT, answer, index_of, page
from aegis.server.schemas import (
    CURSOR,
    HEX32,
    ID,
    KIND,
    LIMIT,
    SINCE,
    TEXT,
    UNTIL,
    WHOLE,
    Schema,
    closed,
    exact,
    failing,
    index,
    listing,
    named,
    nullable,
    ok,
)
from aegis.server.services import Services

# Receipts and the log's proofs.

_HASHES: Final[Schema] = {"type": "array", "items": HEX32}
_RECEIPT: Final[dict[str, Schema]] = {
    **{name: {"description": "see the reference of receipts"} for name in sorted(MEMBERS)},
    "v": WHOLE,
    "index": WHOLE,
    "log": TEXT,
    "kind": KIND,
    "receipt_id": ID,
    "principal": TEXT,
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Receipt": closed(_RECEIPT, "v", "index", "log", "time", "kind", "receipt_id", "prev", "principal"),
    "Receipts": listing("Receipt"),
    "ReceiptDetail": closed(
        {
            "receipt": {"$ref": "#/components/schemas/Receipt"},
            "leaf_hash": HEX32,
            "payload": nullable({"type": "object", "description": "masked, unless revealed; null where erased"}),
            "revealed": {"type": "boolean"},
        }
    ),
    "Proof": closed({"index": WHOLE, "size": WHOLE, "leaf_hash": HEX32, "root": HEX32, "path": _HASHES}),
    "Consistency": closed(
        {"first": WHOLE, "second": WHOLE, "first_root": HEX32, "second_root": HEX32, "path": _HASHES}
    ),
    "Jwks": closed({"keys": {"type": "array", "items": {"type": "object"}}}),
    "LogKeys": {"type": "object", "description": "the `keys.json` that an offline verifier takes"},
}


# What the gateway signs about its own log: the summary of a session, and one receipt in one of two views.


FILTERS: Final = ("kind", "principal", "agent", "session", "call_id", "tool", "decision", "reason", "parent")


async def attest_session(request: ApiRequest) -> Response:
    """Show the signed summary of one session: an agent's own, or any that an auditor names."""
    gate = request.services.gate
    token = await asyncio.to_thread(
        gate.attest_session, request.path["id"], principal=request.principal, whose=request.query.get("principal")
    )
    return answer({"session": request.path["id"], "attestation": token})


ATTEST_SESSION: Final = Endpoint(
    method="GET",
    path="/v1/sessions/{id}/attestation",
    operation="attestSession",
    tag="audit",
    summary="What a session came to, signed by itself: verdicts, budget use, the end of the log",
    permission=ATTEST,
    handler=attest_session,
    path_params=named("name of the session"),
    query=exact("principal"),
    replies={**ok("the attestation", "Attestation"), **failing(s404="the log holds nothing of it")},
)


async def project_receipt(request: ApiRequest) -> Response:
    """Show one receipt as a signed projection; the audit view is for auditors."""
    gate, view = request.services.gate, request.query.get("view", "public")
    token = await asyncio.to_thread(gate.project, request.path["id"], view, principal=request.principal)
    return answer({"receipt_id": request.path["id"], "view": view, "projection": token})


PROJECT_RECEIPT: Final = Endpoint(
    method="GET",
    path="/v1/receipts/{id}/projection",
    operation="projectReceipt",
    tag="audit",
    summary="One receipt, signed by itself: in closed words for anybody, or whole for auditors",
    permission=ATTEST,
    handler=project_receipt,
    path_params=named("id of the receipt"),
    query=(
        Param(
            name="view",
            schema={"type": "string", "enum": ["public", "audit"], "default": "public"},
            text="`public` has closed words alone, `audit` every member",
        ),
    ),
    replies={**ok("the projection", "Projection"), **failing(s404="there is none")},
)


# Receipts and payloads as auditors see them: masked unless they were asked to be revealed.


async def list_receipts(request: ApiRequest) -> Response:
    """Show receipts that match every filter, newest first."""
    return answer(await asyncio.to_thread(find_receipts, request.services, request.query))


LIST_RECEIPTS: Final = Endpoint(
    method="GET",
    path="/v1/receipts",
    operation="listReceipts",
    tag="audit",
    summary="Search the log, newest first",
    permission=AUDIT,
    handler=list_receipts,
    query=(*exact(*FILTERS), SINCE, UNTIL, LIMIT, CURSOR),
    replies=ok("one page", "Receipts"),
)


async def get_receipt(request: ApiRequest) -> Response:
    """Show one receipt; `reveal=true` shows its payload unmasked, and is itself recorded first."""
    reveal = request.query.get("reveal", False)
    return answer(await show_receipt(request.services, request.path["id"], by=request.principal.id, reveal=reveal))


GET_RECEIPT: Final = Endpoint(
    method="GET",
    path="/v1/receipts/{id}",
    operation="getReceipt",
    tag="audit",
    summary="One receipt with its payload, masked; revealing it is recorded",
    permission=AUDIT,
    handler=get_receipt,
    path_params=named("id of the receipt"),
    query=(Param(name="reveal", schema={"type": "boolean", "default": False}, text="unmasked, on record"),),
    replies={**ok("the receipt", "ReceiptDetail"), **failing(s404="there is none")},
)


def find_receipts(services: Services, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of receipts, by the parameters of `LIST_RECEIPTS`."""
    limit = query.get("limit", DEFAULT_LIMIT)
    search = Search(
        **{name: query[name] for name in FILTERS if name in query},
        since=moment(query, "since"),
        until=moment(query, "until"),
        before=index_of(query.get("cursor")),
        limit=limit,
    )
    with services.store.reader() as reader:
        entries = reader.search(search)
    return listed(entries, limit)


async def show_receipt(services: Services, receipt_id: str, *, by: str, reveal: bool) -> dict[str, Any]:
    """Return one receipt with its payload, masked unless `reveal`, which is itself recorded first."""
    entry, payload = await asyncio.to_thread(_detail, services, receipt_id)
    if reveal and payload is not None:
        await services.gate.arecord(Unit(drafts=(_access(entry, by),)))
    return {
        "receipt": orjson.loads(entry.body),
        "leaf_hash": entry.leaf_hash.hex(),
        "payload": None if payload is None else payload_view(payload, reveal=reveal),
        "revealed": bool(reveal and payload is not None),
    }


def listed(entries: list[Entry], limit: int) -> dict[str, Any]:
    """Return one page of receipts, with the cursor of the next where this one is full."""
    following = entries[-1].index if len(entries) == limit else None
    return page([summary(orjson.loads(entry.body)) for entry in entries], following)


def moment(query: Any, name: str) -> int | None:
    """Return the time of a parameter in microseconds since the epoch; raises `InvalidCall` where it is none."""
    text = query.get(name)
    if text is None:
        return None
    try:
        return from_rfc3339(text)
    except (ValueError, OverflowError) as error:
        raise InvalidCall(f"`{name}` is not an RFC 3339 time", hint="such as 2026-01-02T03:04:05Z") from error


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


# Checkpoints, proofs, export and keys.

PAGE: Final = 512  # receipts read for one chunk of an export: bounds what it holds


async def proof(request: ApiRequest) -> Response:
    """Proof that a leaf is in the tree of `size` leaves (RFC 9162, 2.1.3.1)."""
    query = request.query
    return answer(await asyncio.to_thread(prove_inclusion, request.services.store, query["index"], query.get("size")))


PROOF: Final = Endpoint(
    method="GET",
    path="/v1/log/proof",
    operation="getInclusionProof",
    tag="audit",
    summary="Proof that a leaf is in the log (RFC 9162, 2.1.3)",
    permission=AUDIT,
    handler=proof,
    query=(
        index("index", "position of the leaf", required=True),
        index("size", "size of the tree, else now"),
    ),
    replies=ok("the proof", "Proof"),
)


async def consistency(request: ApiRequest) -> Response:
    """Proof that the tree of `second` leaves begins with the tree of `first` (RFC 9162, 2.1.4.1)."""
    query = request.query
    return answer(
        await asyncio.to_thread(prove_consistency, request.services.store, query["first"], query.get("second"))
    )


CONSISTENCY: Final = Endpoint(
    method="GET",
    path="/v1/log/consistency",
    operation="getConsistencyProof",
    tag="audit",
    summary="Proof that the log only grew (RFC 9162, 2.1.4)",
    permission=AUDIT,
    handler=consistency,
    query=(index("first", "the earlier size", required=True), index("second", "the later size; now by default")),
    replies=ok("the proof", "Consistency"),
)


async def export(request: ApiRequest) -> Response:
    """Show the receipts as canonical lines, in order, streamed; `size` of them, or all there are."""
    query = request.query
    return await export_log(request.services.store, query.get("start", 0), query.get("size"))


EXPORT: Final = Endpoint(
    method="GET",
    path="/v1/log/export",
    operation="exportLog",
    tag="audit",
    summary="The receipts as canonical lines, streamed; `receipts.jsonl` of an offline verification",
    permission=AUDIT,
    handler=export,
    query=(index("start", "first position; 0 by default"), index("size", "end position; now by default")),
    replies={
        200: Reply(
            text="one receipt a line",
            schema={"type": "string"},
            media="application/x-ndjson",
            headers={"Aegis-Log-Size": "end position of this export"},
        )
    },
)


async def jwks(request: ApiRequest) -> Response:
    """Show the public keys of the deployment (RFC 7517)."""
    document = await asyncio.to_thread(key_document, request.services.store)
    # Which agents there are stays with the auditors.
    keys = [{name: value for name, value in key.items() if name != "agent"} for key in key_set(document)["keys"]]
    return answer({"keys": keys})


JWKS: Final = Endpoint(
    method="GET",
    path="/.well-known/jwks.json",
    operation="getJwks",
    tag="open",
    summary="The public keys of the deployment (RFC 7517)",
    permission=ANYBODY,
    handler=jwks,
    replies=ok("the keys", "Jwks"),
)


async def keys(request: ApiRequest) -> Response:
    """Show the `keys.json` of an offline verification; a verifier gets it another way than the receipts."""
    return answer(await asyncio.to_thread(key_document, request.services.store))


KEYS: Final = Endpoint(
    method="GET",
    path="/v1/log/keys",
    operation="exportKeys",
    tag="audit",
    summary="The public keys and their validity; `keys.json` of an offline verification",
    permission=AUDIT,
    handler=keys,
    replies=ok("the keys", "LogKeys"),
)


async def checkpoint(request: ApiRequest) -> Response:
    """Show the end of the log in a signed note (C2SP tlog-checkpoint)."""
    return Response(await asyncio.to_thread(signed_checkpoint, request.services), media_type="text/plain")


CHECKPOINT: Final = Endpoint(
    method="GET",
    path="/v1/log/checkpoint",
    operation="getCheckpoint",
    tag="audit",
    summary="A signed checkpoint of the log as it is now (C2SP signed note)",
    permission=AUDIT,
    handler=checkpoint,
    replies={200: Reply(text="the note", schema={"type": "string"}, media="text/plain; charset=utf-8")},
)


async def export_log(store: Store, start: int = 0, size: int | None = None) -> Response:
    """Show the lines from `start` to `size`, or to the end of the log, as a download."""
    head = await asyncio.to_thread(_head, store)
    size = head.size if size is None else size
    if not start <= size <= head.size:
        raise InvalidCall("`start` to `size` is not inside the log", code="out_of_range", hint="see the checkpoint")
    return StreamingResponse(
        _lines(store, start, size),
        media_type="application/x-ndjson",
        headers={
            "content-disposition": 'attachment; filename="receipts.jsonl"',
            "aegis-log-size": str(size),
        },
    )


def signed_checkpoint(services: Services) -> bytes:
    """Return the end of the log in a signed note."""
    with services.store.reader() as reader:
        head = reader.head()
    return sign_checkpoint(checkpoint_of(head, services.log), services.log_signer())


def _lines(store: Store, start: int, stop: int) -> Iterator[bytes]:
    for at in range(start, stop, PAGE):
        with store.reader() as reader:
            yield b"".join(entry.body + b"\n" for entry in reader.entries(at, min(at + PAGE, stop)))


def prove_inclusion(store: Store, index: int, size: int | None) -> dict[str, Any]:
    """Return the proof of one leaf in the tree of `size` leaves, or in all of the log."""
    with store.reader() as reader:
        size = reader.head().size if size is None else size
        path = inclusion_proof(index, size, reader)
        leaf = reader.leaf_hashes(index, index + 1)[0]
        root = root_at(size, reader)
    return {
        "index": index,
        "size": size,
        "leaf_hash": leaf.hex(),
        "root": root.hex(),
        "path": [node.hex() for node in path],
    }


def prove_consistency(store: Store, first: int, second: int | None) -> dict[str, Any]:
    """Return the proof that the tree of `second` leaves, or all of the log, begins with the tree of `first`."""
    with store.reader() as reader:
        second = reader.head().size if second is None else second
        path = consistency_proof(first, second, reader)
        roots = root_at(first, reader).hex(), root_at(second, reader).hex()
    return {
        "first": first,
        "second": second,
        "first_root": roots[0],
        "second_root": roots[1],
        "path": [node.hex() for node in path],
    }


def key_document(store: Store) -> dict[str, Any]:
    """Return the `keys.json` of an offline verification."""
    with store.reader() as reader:
        return public_keys(reader)


def _head(store: Store) -> Head:
    with store.reader() as reader:
        return reader.head()


# The log for those who audit it.

RECEIPTS: Final = (
    LIST_RECEIPTS,
    GET_RECEIPT,
    PROJECT_RECEIPT,
    ATTEST_SESSION,
)

LOG: Final = (
    CHECKPOINT,
    PROOF,
    CONSISTENCY,
    EXPORT,
    KEYS,
)
