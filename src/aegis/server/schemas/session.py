"""Sessions."""

from __future__ import annotations

from typing import Final

from aegis.core.call import MAX_TASK_CHARS
from aegis.gate.surroundings import MAX_MOUNTS
from aegis.server.schemas.common import NAME, TEXT, WHOLE, Schema, closed, listing, nullable, optional, ref
from aegis.server.schemas.mission import TOKEN

MAX_TOOLS: Final = 2_000

SCHEMAS: Final[dict[str, Schema]] = {
    "SessionOpening": optional(
        {
            "session": {**NAME, "description": "its name under this principal; drawn where it is left out"},
            "task": {"type": "string", "maxLength": MAX_TASK_CHARS, "description": "what the user asked for"},
            "owner": {**NAME, "description": "the person for whom it runs, who may be barred from approving its calls"},
            "available_tools": {
                "type": "array",
                "maxItems": MAX_TOOLS,
                "description": "what the host offers the agent: names or whole definitions",
            },
            "mounts": {
                "type": "array",
                "items": TEXT,
                "maxItems": MAX_MOUNTS,
                "description": "the folders on the gateway's machine that the agent works in",
            },
            "mission": {**NAME, "description": "the id of the mission that the session serves"},
            "proof": {**TOKEN, "description": "answers the challenge with the key that the mission names"},
        }
    ),
    "SessionOpened": closed(
        {
            "session": TEXT,
            "receipt": ref("ReceiptRef"),
            "audience": {**TEXT, "description": "what the proofs of its calls are made for"},
            "next_number": {**WHOLE, "description": "the first sequence number that no proof has used"},
        },
        "session",
        "receipt",
    ),
    "Attestation": closed({"session": TEXT, "attestation": TOKEN}),
    "Projection": closed(
        {"receipt_id": TEXT, "view": {"type": "string", "enum": ["public", "audit"]}, "projection": TOKEN}
    ),
    "SessionRow": closed(
        {"session": TEXT, "principal": TEXT, "agent": TEXT, "first": WHOLE, "last": WHOLE, "count": WHOLE}
    ),
    "Sessions": listing("SessionRow"),
    "Trace": closed({"session": TEXT, "items": {"type": "array", "items": ref("Receipt")}, "next": nullable(TEXT)}),
}
