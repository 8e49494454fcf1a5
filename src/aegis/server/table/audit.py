"""The log for those who audit it."""

from __future__ import annotations

from typing import Final

from aegis.server.attesting import attest_session, project_receipt
from aegis.server.endpoint import Endpoint, Param, Reply
from aegis.server.log import checkpoint, consistency, export, keys, proof
from aegis.server.permissions import ATTEST, AUDIT
from aegis.server.receipts import get_receipt, list_receipts
from aegis.server.sessions import LIST_FILTERS, TRACE_FILTERS, list_sessions, trace_session
from aegis.server.table.parts import CURSOR, LIMIT, SINCE, UNTIL, exact, failing, index, named, ok

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
