"""Agents, configuration, health."""

from __future__ import annotations

from typing import Final

from aegis.server.limits import MAX_REASON_CHARS, MAX_WISH_CHARS
from aegis.server.schemas.common import (
    ANY_OBJECT,
    ID,
    NAME,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    closed,
    listing,
    nullable,
    optional,
    ref,
)

AGENT_STATE: Final[Schema] = {"type": "string", "enum": ["active", "revoked"]}
_REASON: Final[Schema] = {"type": "string", "maxLength": MAX_REASON_CHARS}
_ENDED: Final[Schema] = closed({"decision": TEXT, "reason": TEXT})
_PROBLEMS: Final[Schema] = {
    "type": "array",
    "items": closed({"message": TEXT, "line": WHOLE, "pointer": TEXT, "hint": TEXT}),
}
_COUNTS: Final[Schema] = {"type": "object", "additionalProperties": WHOLE}

SCHEMAS: Final[dict[str, Schema]] = {
    "Agent": closed({"agent": TEXT, "state": AGENT_STATE, "reason": TEXT, "by": TEXT}),
    "Agents": listing("Agent"),
    "AgentRegistration": closed({"agent": NAME, "reason": _REASON}, "agent"),
    "AgentChange": optional({"reason": _REASON}),
    "AgentChanged": closed({"agent": TEXT, "state": AGENT_STATE, "reason": TEXT, "receipt": ref("ReceiptRef")}),
    "Config": closed({"digest": TEXT, "config": ANY_OBJECT}),
    "ConfigChanged": closed({"digest": TEXT, "before": TEXT}),
    "ConfigChecked": closed(
        {
            "valid": {"type": "boolean"},
            "digest": nullable(TEXT),
            "problems": _PROBLEMS,
        }
    ),
    "DraftRequest": closed({"wish": {"type": "string", "minLength": 1, "maxLength": MAX_WISH_CHARS}}),
    "Drafted": closed(
        {
            "base": TEXT,
            "digest": nullable(TEXT),
            "policy": nullable(ANY_OBJECT),
            "config": nullable(TEXT),
            "valid": {"type": "boolean"},
            "explanation": TEXT,
            "problems": _PROBLEMS,
            "cases": {
                "type": "array",
                "items": closed(
                    {
                        "tool": TEXT,
                        "arguments": ANY_OBJECT,
                        "why": TEXT,
                        "expected": {"enum": ["caught", "passes"]},
                        "caught": {"type": "boolean"},
                        "holds": {"type": "boolean"},
                        "before": _ENDED,
                        "after": _ENDED,
                    }
                ),
            },
        }
    ),
    "Replay": closed(
        {
            "digest": TEXT,
            "replayed": WHOLE,
            "skipped": WHOLE,
            "before": _COUNTS,
            "after": _COUNTS,
            "changed": {
                "type": "array",
                "items": closed(
                    {
                        "receipt_id": ID,
                        "index": WHOLE,
                        "tool": TEXT,
                        "agent": TEXT,
                        "before": _ENDED,
                        "after": _ENDED,
                    }
                ),
            },
            "summary": {
                "type": "array",
                "items": closed({"tool": TEXT, "agent": TEXT, "before": _ENDED, "after": _ENDED, "calls": WHOLE}),
            },
            "span": closed(
                {"since": nullable(TIME), "until": nullable(TIME), "complete": {"type": "boolean"}},
            ),
            "next": nullable(TEXT),
        }
    ),
    "Health": closed({"status": {"const": "ok"}}),
    "Ready": closed({"status": {"const": "ready"}, "checks": {"type": "object", "additionalProperties": TEXT}}),
}
