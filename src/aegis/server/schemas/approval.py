"""Held calls."""

from __future__ import annotations

from typing import Final

from aegis.server.limits import MAX_REASON_CHARS
from aegis.server.schemas.common import ANY_OBJECT, DIGEST, ID, TEXT, TIME, Schema, closed, listing, nullable
from aegis.server.schemas.decision import FINDINGS

STATES: Final = ("pending", "approved", "denied", "expired", "cancelled", "redeemed")
_STATUS: Final[dict[str, Schema]] = {
    "id": ID,
    "state": {"type": "string", "enum": list(STATES)},
    "call_id": TEXT,
    "call_digest": DIGEST,
    "expires_at": TIME,
}

_SCOPE: Final[Schema] = {"type": "string", "enum": ["once", "session"]}

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
            "held_because": TEXT,
            "facts": closed(
                {
                    "risk": TEXT,
                    "effects": {"type": "array", "items": TEXT},
                    "irreversible": {"type": "boolean"},
                    "files_bound": {
                        "type": "boolean",
                        "description": "every file that the call names is bound too",
                    },
                    "working_directory": {
                        **nullable(TEXT),
                        "description": "where its relative paths start, where that is known",
                    },
                },
                "risk",
                "effects",
                "irreversible",
                "files_bound",
                "working_directory",
            ),
            "quorum": {"type": "integer", "minimum": 1},
            "votes": {
                "type": "array",
                "items": closed({"by": TEXT, "at": TIME, "scope": _SCOPE}, "by", "at", "scope"),
            },
            "turn": {"type": "integer", "minimum": 0, "description": "whose turn it is, in the order of `approvers`"},
            "approvers": {
                "type": "array",
                "items": {"type": "array", "items": TEXT},
                "description": "who may answer: an approver stands in every list",
            },
            "may_answer": {"type": "boolean", "description": "whether this credential may answer now"},
            "session_grant_seconds": {
                "type": "integer",
                "description": "how long a yes for the session would last; 0 where there is none",
            },
            "fatigued": {
                "type": "array",
                "items": TEXT,
                "description": "approvers who answered as often as one may in an hour",
            },
            "narrowed": {"type": "boolean", "description": "whether `arguments` are narrower than `submitted`"},
            "submitted": nullable(ANY_OBJECT),
            "task": nullable(TEXT),
            "grant": nullable(ID),
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
    "Grant": closed(
        {
            "id": ID,
            "state": {"type": "string", "enum": ["active", "expired", "revoked"]},
            "approval_id": ID,
            "principal": TEXT,
            "agent": TEXT,
            "session": TEXT,
            "tool": TEXT,
            "server": nullable(TEXT),
            "call_digest": DIGEST,
            "policy_digest": DIGEST,
            "approvers": {"type": "array", "items": TEXT},
            "created_at": TIME,
            "expires_at": TIME,
            "revoked_by": nullable(TEXT),
        },
        "id",
        "state",
    ),
    "Grants": listing("Grant"),
    "Resolution": closed(
        {
            "decision": {"type": "string", "enum": ["approve", "deny"]},
            "reason": {"type": "string", "maxLength": MAX_REASON_CHARS},
            "arguments": {
                **ANY_OBJECT,
                "description": "with `approve`: what is to run instead, doing no more than what is held",
            },
            "scope": {
                **_SCOPE,
                "description": "`session`: the same call again in its session, while the policy lets it",
            },
            "call_digest": {**DIGEST, "description": "the digest that was shown; another one is refused (409)"},
            "policy_digest": {**DIGEST, "description": "the digest that was shown; another one is refused (409)"},
        },
        "decision",
    ),
}
