"""JSON Schemas (2020-12) of what crosses the HTTP API; those of one feature stand in its `routes.py`."""

from __future__ import annotations

from typing import Any, Final, get_args

from aegis.core.call import MAX_DEPENDS, MAX_NAME_CHARS, MAX_TASK_CHARS, MAX_UNRESOLVED
from aegis.core.outcome import Category, Outcome, Reason, Risk, Verdict
from aegis.core.reasoning import MAX_BLOCKS, MAX_CHANGED, MAX_PURPOSE_CHARS
from aegis.core.reasoning import MAX_CHARS as MAX_REASONING
from aegis.core.receipt import KINDS
from aegis.keys.jws import MAX_CHARS as MAX_PERMIT_CHARS
from aegis.missions.status import MAX_CHARS
from aegis.server.endpoint import Body, Param, Reply
from aegis.server.http import DEFAULT_LIMIT, MAX_CALLS, MAX_CURSOR_CHARS, MAX_LIMIT
from aegis.server.wire import MAX_PROOF_CHARS

# Building blocks: names, digests, receipts' places, the error shape, lists.

Schema = dict[str, Any]

# At least one character that is no blank, and no control anywhere.
_CONTROLS: Final = "\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029"
_VISIBLE: Final = f"^[^{_CONTROLS}]*[^\\s{_CONTROLS}][^{_CONTROLS}]*$"
NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARS, "pattern": _VISIBLE}
TEXT: Final[Schema] = {"type": "string"}
DIGEST: Final[Schema] = {"type": "string", "pattern": "^sha-256:[0-9a-f]{64}$"}
HEX32: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
ID: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
ANY_OBJECT: Final[Schema] = {"type": "object"}


def later(what: str) -> Schema:
    """A member that the contract has and this version cannot keep: refused, not ignored."""
    return {"not": {}, "description": f"{what}; not available in this version"}


def ref(name: str) -> Schema:
    """A reference to a named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def closed(properties: dict[str, Schema], *required: str) -> Schema:
    """An object with these members and no others; all are required unless some are named."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required) or list(properties),
        "additionalProperties": False,
    }


def optional(properties: dict[str, Schema]) -> Schema:
    """An object with some of these members and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def one_of(properties: dict[str, Schema]) -> Schema:
    """An object with exactly one of these members and no others."""
    return {**optional(properties), "description": "exactly one member", "minProperties": 1, "maxProperties": 1}


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def listing(item: str) -> Schema:
    """One page of a list."""
    return closed({"items": {"type": "array", "items": ref(item)}, "next": nullable(TEXT)})


COMMON_SCHEMAS: Final[dict[str, Schema]] = {
    "Error": closed(
        {"error": closed({"code": TEXT, "message": TEXT, "hint": TEXT, "request_id": TEXT})},
    ),
    "ProviderError": {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {"code": TEXT, "message": TEXT, "hint": TEXT, "request_id": TEXT, "type": TEXT},
                "required": ["code", "message", "hint", "request_id", "type"],
            }
        },
        "required": ["error"],
    },
    "GeminiError": closed(
        {
            "error": closed(
                {"code": WHOLE, "message": TEXT, "status": TEXT, "reason": TEXT, "hint": TEXT, "request_id": TEXT}
            )
        }
    ),
    "OllamaError": closed({"error": TEXT, "code": TEXT, "hint": TEXT, "request_id": TEXT}),
    "BedrockError": closed({"message": TEXT, "code": TEXT, "hint": TEXT, "request_id": TEXT}),
    "ReceiptRef": closed({"id": ID, "index": WHOLE, "leaf_hash": HEX32}),
}


KIND: Final[Schema] = {"type": "string", "enum": list(KINDS)}


# Tool calls, decisions, results.

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

CALL_SCHEMAS: Final[dict[str, Schema]] = {
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
            "depends_on": {
                "type": "array",
                "maxItems": MAX_DEPENDS,
                "items": NAME,
                "description": "the calls out of whose results the arguments are made",
            },
            "resolves": {**NAME, "description": "the deferred call that this one is, with its arguments filled in"},
            "handoff": {
                "type": "boolean",
                "description": "whether the host carries it out by letting another agent of the session go on",
            },
            "reasoning": ref("Reasoning"),
        },
        "tool",
        "arguments",
    ),
    "Reasoning": optional(
        {
            "blocks": {
                "type": "array",
                "maxItems": MAX_BLOCKS,
                "items": optional({"text": {"type": "string", "maxLength": MAX_REASONING}, "signature": TEXT}),
                "description": "what the model reasoned, in its order, with the provider's signatures",
            },
            "purpose": {"type": "string", "maxLength": MAX_PURPOSE_CHARS, "description": "why the call is made"},
            "digest": {**DIGEST, "description": "of all blocks, where not all are given"},
            "changed": {**WHOLE, "maximum": MAX_CHANGED, "description": "signed blocks that came back changed"},
        }
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
            "approval": closed(
                {
                    "id": ID,
                    "expires_at": TIME,
                    "url": TEXT,
                    "kind": {"type": "string", "enum": ["approval", "deferral"]},
                    "waiting_for": {
                        "type": "array",
                        "items": TEXT,
                        "description": "the evidence that is still to come",
                    },
                },
                "id",
                "expires_at",
                "url",
            ),
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
            "failed": {"type": "boolean", "description": "whether the call ran and did not do its work"},
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


# What several endpoints share: parameters of lists, and how statuses are described.

_TIME: Final[Schema] = {"type": "string", "maxLength": 40, "format": "date-time"}
_WORDS: Final[dict[str, Schema]] = {
    "kind": KIND,
    "decision": {"type": "string", "enum": [outcome.word for outcome in Outcome]},
    "reason": {"type": "string", "enum": [reason.value for reason in Reason]},
}

LIMIT: Final = Param(
    name="limit",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    text="how many items at most",
)
CURSOR: Final = Param(
    name="cursor",
    schema={"type": "string", "minLength": 1, "maxLength": MAX_CURSOR_CHARS, "pattern": "^[A-Za-z0-9_-]+$"},
    text="`next` of the page before",
)
RETRY: Final = {"Retry-After": "whole seconds"}
SINCE: Final = Param(name="since", schema=_TIME, text="recorded at this time or later (RFC 3339)")
UNTIL: Final = Param(name="until", schema=_TIME, text="recorded at this time or earlier (RFC 3339)")

YAML: Final = Body(schema={"type": "object", "description": "`aegis.yaml`, as text"}, media="application/yaml")


def exact(*names: str) -> tuple[Param, ...]:
    """Filters that keep what has exactly the value."""
    return tuple(Param(name=name, schema=_WORDS.get(name, NAME), text=f"with this `{name}`") for name in names)


def named(text: str) -> tuple[Param, ...]:
    """The one name in a path."""
    return (Param(name="id", schema=NAME, text=text),)


def index(name: str, text: str, *, required: bool = False) -> Param:
    """A position or size of the log."""
    return Param(name=name, schema=WHOLE, text=text, required=required)


def ok(text: str, schema: str, status: int = 200) -> dict[int, Reply]:
    """The usual answer."""
    return {status: Reply(text=text, schema=ref(schema))}


def failing(**reasons: str) -> dict[int, Reply]:
    """Answers in the error shape, by status: `failing(s404="there is none")`."""
    return {int(name[1:]): Reply(text=text, schema=ref("Error")) for name, text in reasons.items()}


# Permits that tools demand.

PERMIT_SCHEMAS: Final[dict[str, Schema]] = {
    "PermitCheck": closed(
        {
            "permit": {"type": "string", "minLength": 1, "maxLength": MAX_PERMIT_CHARS, "description": "compact JWS"},
            "tool": NAME,
            "arguments": {**ANY_OBJECT, "description": "what the tool is about to run with"},
            "server": {**NAME, "description": "the tool's namespace; without it, the one that the permit names"},
        },
        "permit",
        "tool",
        "arguments",
    ),
    "PermitRedeemed": closed({"valid": {"type": "boolean", "enum": [True]}, "permit_id": ID}),
}
