"""The log for those who audit it: checkpoints, proofs, consistency, export, and the public keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from aegis.context.routes import LIST_FILTERS, TRACE_FILTERS, list_sessions, trace_session
from aegis.core.ports import Head, Store
from aegis.core.receipt import MEMBERS
from aegis.errors import InvalidCall
from aegis.log.checkpoint import checkpoint_of, sign_checkpoint
from aegis.log.merkle import consistency_proof, inclusion_proof, root_at
from aegis.log.receipts import attest_session, get_receipt, list_receipts, project_receipt
from aegis.log.trust import jwks as key_set
from aegis.log.trust import public_keys
from aegis.server.endpoint import Asked, Endpoint, Param, Reply
from aegis.server.http import answer
from aegis.server.permissions import ATTEST, AUDIT
from aegis.server.schemas.common import HEX32, ID, KIND, TEXT, WHOLE, Schema, closed, listing, nullable
from aegis.server.schemas.parts import CURSOR, LIMIT, SINCE, UNTIL, exact, failing, index, named, ok

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


PAGE: Final = 512  # receipts read for one chunk of an export: bounds what it holds


async def proof(asked: Asked) -> Response:
    """Proof that a leaf is in the tree of `size` leaves (RFC 9162, 2.1.3.1)."""
    return answer(await asyncio.to_thread(_proof, asked.services.store, asked.query))


async def consistency(asked: Asked) -> Response:
    """Proof that the tree of `second` leaves begins with the tree of `first` (RFC 9162, 2.1.4.1)."""
    return answer(await asyncio.to_thread(_consistency, asked.services.store, asked.query))


async def export(asked: Asked) -> Response:
    """The receipts as canonical lines, in order, streamed; `size` of them, or all there are."""
    store = asked.services.store
    head = await asyncio.to_thread(_head, store)
    size = asked.query.get("size", head.size)
    start = asked.query.get("start", 0)
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


async def jwks(asked: Asked) -> Response:
    """The public keys of the deployment (RFC 7517)."""
    document = await asyncio.to_thread(_keys, asked.services.store)
    # Which agents there are stays with the auditors.
    keys = [{name: value for name, value in key.items() if name != "agent"} for key in key_set(document)["keys"]]
    return answer({"keys": keys})


async def keys(asked: Asked) -> Response:
    """The `keys.json` of an offline verification; a verifier gets it another way than the receipts."""
    return answer(await asyncio.to_thread(_keys, asked.services.store))


async def checkpoint(asked: Asked) -> Response:
    """The end of the log in a signed note (C2SP tlog-checkpoint)."""
    services = asked.services
    head = await asyncio.to_thread(_head, services.store)
    note = sign_checkpoint(checkpoint_of(head, services.log), services.log_signer())
    return Response(note, media_type="text/plain")


def _lines(store: Store, start: int, stop: int) -> Iterator[bytes]:
    for at in range(start, stop, PAGE):
        with store.reader() as reader:
            yield b"".join(entry.body + b"\n" for entry in reader.entries(at, min(at + PAGE, stop)))


def _proof(store: Store, query: Any) -> dict[str, Any]:
    if "index" not in query:
        raise InvalidCall("`index` is needed", code="missing_parameter")
    with store.reader() as reader:
        index, size = query["index"], query.get("size", reader.head().size)
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


def _consistency(store: Store, query: Any) -> dict[str, Any]:
    if "first" not in query:
        raise InvalidCall("`first` is needed", code="missing_parameter")
    with store.reader() as reader:
        first, second = query["first"], query.get("second", reader.head().size)
        path = consistency_proof(first, second, reader)
        roots = root_at(first, reader).hex(), root_at(second, reader).hex()
    return {
        "first": first,
        "second": second,
        "first_root": roots[0],
        "second_root": roots[1],
        "path": [node.hex() for node in path],
    }


def _keys(store: Store) -> dict[str, Any]:
    with store.reader() as reader:
        return public_keys(reader)


def _head(store: Store) -> Head:
    with store.reader() as reader:
        return reader.head()


# The log for those who audit it.

_FILTERS: Final = exact("kind", "principal", "agent", "session", "call_id", "tool", "decision", "reason", "parent")

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/v1/receipts",
        operation="listReceipts",
        tag="audit",
        summary="Search the log, newest first",
        permission=AUDIT,
        handler=list_receipts,
        query=(*_FILTERS, SINCE, UNTIL, LIMIT, CURSOR),
        replies=ok("one page", "Receipts"),
    ),
    Endpoint(
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
    ),
    Endpoint(
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
    ),
    Endpoint(
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
    ),
    Endpoint(
        method="GET",
        path="/v1/sessions",
        operation="listSessions",
        tag="audit",
        summary="Sessions by their last entry, newest first",
        permission=AUDIT,
        handler=list_sessions,
        query=(*exact(*LIST_FILTERS), SINCE, UNTIL, LIMIT, CURSOR),
        replies=ok("one page", "Sessions"),
    ),
    Endpoint(
        method="GET",
        path="/v1/sessions/{id:path}",
        operation="traceSession",
        tag="audit",
        summary="Everything that the log holds of a session, newest first",
        permission=AUDIT,
        handler=trace_session,
        path_params=named("name of the session"),
        query=(*exact(*TRACE_FILTERS), SINCE, UNTIL, LIMIT, CURSOR),
        replies={**ok("one page of the trace", "Trace"), **failing(s404="the log holds nothing of it")},
    ),
    Endpoint(
        method="GET",
        path="/v1/log/checkpoint",
        operation="getCheckpoint",
        tag="audit",
        summary="A signed checkpoint of the log as it is now (C2SP signed note)",
        permission=AUDIT,
        handler=checkpoint,
        replies={200: Reply(text="the note", schema={"type": "string"}, media="text/plain; charset=utf-8")},
    ),
    Endpoint(
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
    ),
    Endpoint(
        method="GET",
        path="/v1/log/consistency",
        operation="getConsistencyProof",
        tag="audit",
        summary="Proof that the log only grew (RFC 9162, 2.1.4)",
        permission=AUDIT,
        handler=consistency,
        query=(index("first", "the earlier size", required=True), index("second", "the later size; now by default")),
        replies=ok("the proof", "Consistency"),
    ),
    Endpoint(
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
    ),
    Endpoint(
        method="GET",
        path="/v1/log/keys",
        operation="exportKeys",
        tag="audit",
        summary="The public keys and their validity; `keys.json` of an offline verification",
        permission=AUDIT,
        handler=keys,
        replies=ok("the keys", "LogKeys"),
    ),
)
