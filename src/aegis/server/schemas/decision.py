"""Tool calls, decisions, results."""

from __future__ import annotations

from typing import Final, get_args

from aegis.core.call import MAX_TASK_CHARS, MAX_UNRESOLVED
from aegis.core.outcome import Category, Outcome, Reason, Risk, Verdict
from aegis.missions.status import MAX_CHARS
from aegis.server.http import MAX_CALLS
from aegis.server.schemas.common import (
    ANY_OBJECT,
    DIGEST,
    HEX32,
    ID,
    NAME,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    closed,
    ref,
)
from aegis.server.wire import MAX_PROOF_CHARS

OUTCOMES: Final[Schema] = {"type": "string", "enum": [outcome.word for outcome in Outcome]}
RESULT_OUTCOMES: Final[Schema] = {"type": "string", "enum": ["allow", "sanitize", "block"]}
VERDICTS: Final[Schema] = {"type": "string", "enum": [verdict.word for verdict in Verdict]}
RISKS: Final[Schema] = {"type": "string", "enum": [risk.word for risk in Risk]}
REASONS: Final[Schema] = {"type": "string", "enum": [reason.value for reason in Reason]}
FINDINGS: Final[Schema] = {"type": "array", "items": ref("Finding")}

_PROVENANCE: Final[Schema] = {
    "type": "string",
    "maxLength": MAX_CHARS,
    "description": "the tool's own signature over the result (compact JWS)",
}

SCHEMAS: Final[dict[str, Schema]] = {
    "ToolCall": closed(
        {
            "tool": NAME,
            "arguments": ANY_OBJECT,
            "server": NAME,
            "call_id": NAME,
            "agent": NAME,
            "session": NAME,
            "parent": NAME,
            "turn": WHOLE,
            "want_permit": {"type": "boolean"},
            "task": {"type": "string", "maxLength": MAX_TASK_CHARS},
            "messages_digest": NAME,
            "unresolved": {
                "type": "array",
                "maxItems": MAX_UNRESOLVED,
                "items": {"type": "string", "pattern": "^(/|$)"},
            },
            "proof": {"type": "string", "maxLength": MAX_PROOF_CHARS},
        },
        "tool",
        "arguments",
    ),
    "Finding": closed(
        {
            "guard": TEXT,
            "rule": TEXT,
            "category": {"type": "string", "enum": list(get_args(Category))},
            "severity": RISKS,
            "outcome": OUTCOMES,
            "path": {"type": "string", "description": "JSON pointer"},
            "message": TEXT,
            "evidence": {"type": "string", "description": "what was matched, masked"},
        }
    ),
    "Decision": closed(
        {
            "decision": OUTCOMES,
            "verdict": VERDICTS,
            "risk": RISKS,
            "reason": REASONS,
            "message": TEXT,
            "decision_id": ID,
            "call_id": NAME,
            "request_digest": DIGEST,
            "call_digest": DIGEST,
            "policy_digest": TEXT,
            "salt": HEX32,
            "guards": {
                "type": "array",
                "items": closed({"guard": TEXT, "outcome": OUTCOMES, "us": WHOLE}),
            },
            "arguments": {"type": "object", "description": "only with `sanitize`: what must be executed instead"},
            "missing": {"type": "array", "items": TEXT, "description": "what could not be evaluated"},
            "approval": closed({"id": ID, "expires_at": TIME, "url": TEXT}),
            "permit": {"type": "string", "description": "compact JWS"},
            "receipt": ref("ReceiptRef"),
            "findings": FINDINGS,
        },
        "decision",
        "verdict",
        "risk",
        "reason",
        "message",
        "decision_id",
        "call_id",
        "request_digest",
        "call_digest",
        "policy_digest",
        "salt",
        "guards",
    ),
    "Batch": {
        "anyOf": [
            closed({"calls": {"type": "array", "maxItems": MAX_CALLS, "items": ref("ToolCall")}}),
            {"type": "array", "maxItems": MAX_CALLS, "items": ref("ToolCall")},
        ]
    },
    "BatchDecision": closed({"decisions": {"type": "array", "items": ref("Decision")}}),
    "ToolResult": closed(
        {
            "decision_id": NAME,
            "result": {"description": "any JSON value"},
            "provenance": _PROVENANCE,
            "further": {
                "type": "boolean",
                "description": "another text of a call beside its one result, such as how an attempt failed: judged "
                "and recorded for itself, and settling nothing",
            },
        },
        "decision_id",
        "result",
    ),
    "ResultDecision": closed(
        {
            "decision": RESULT_OUTCOMES,
            "verdict": VERDICTS,
            "reason": REASONS,
            "message": TEXT,
            "result": {"description": "only with `sanitize`: what the model may see instead"},
            "receipt": ref("ReceiptRef"),
            "findings": FINDINGS,
        },
        "decision",
        "verdict",
        "reason",
        "message",
    ),
    "StreamChunks": {
        "type": "string",
        "description": 'lines of JSON: `{"chunk": TEXT}` or `{"base64": TEXT}`, and where the tool signed the whole, '
        '`{"provenance": TOKEN}` as the last one',
    },
    "StreamVerdicts": {
        "type": "string",
        "description": "lines of JSON: `decision`, `verdict`, `bytes` that came, `released` that may be passed on, and "
        "`final`; the last line also has the members of a result's answer",
    },
}
