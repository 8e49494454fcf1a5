"""Receipts and the log's proofs."""

from __future__ import annotations

from typing import Final

from aegis.core.receipt import KINDS, MEMBERS
from aegis.server.schemas.common import HEX32, ID, TEXT, WHOLE, Schema, closed, listing, nullable

KIND: Final[Schema] = {"type": "string", "enum": list(KINDS)}
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
