"""Held calls."""

from __future__ import annotations

from typing import Final

from aegis.server.limits import MAX_REASON_CHARS
from aegis.server.schemas.common import ANY_OBJECT, DIGEST, ID, TEXT, TIME, Schema, closed, later, listing, nullable
from aegis.server.schemas.decision import FINDINGS

STATES: Final = ("pending", "approved", "denied", "expired", "cancelled", "redeemed")
_STATUS: Final[dict[str, Schema]] = {
    "id": ID,
    "state": {"type": "string", "enum": list(STATES)},
    "call_id": TEXT,
    "call_digest": DIGEST,
    "expires_at": TIME,
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Approval": closed(
        {
            **_STATUS,
            "tool": TEXT,
            "server": nullable(TEXT),
            "agent": TEXT,
            "principal": TEXT,
            "session": nullable(TEXT),
            "decision_id": ID,
            "policy_digest": TEXT,
            "created_at": TIME,
            "resolved_by": nullable(TEXT),
            "resolved_at": nullable(TIME),
            "reason": nullable(TEXT),
            "permit": {"type": "null", "description": "a permit goes to the agent alone"},
            "arguments": nullable(ANY_OBJECT),
            "preview": ANY_OBJECT,
            "findings": FINDINGS,
        },
        "id",
        "state",
        "call_id",
        "call_digest",
        "expires_at",
    ),
    "Approvals": listing("Approval"),
    "Resolution": closed(
        {
            "decision": {"type": "string", "enum": ["approve", "deny"]},
            "reason": {"type": "string", "maxLength": MAX_REASON_CHARS},
            "arguments": later("narrowed arguments"),
            "scope": {"type": "string", "enum": ["once"], "description": "`session`: not available in this version"},
            "call_digest": {**DIGEST, "description": "the digest that was shown; another one is refused (409)"},
            "policy_digest": {**DIGEST, "description": "the digest that was shown; another one is refused (409)"},
        },
        "decision",
    ),
}
