"""Governed runs."""

from __future__ import annotations

from typing import Final

from aegis.server.schemas.common import NAME, TEXT, WHOLE, Schema, closed, nullable, optional, ref

MAX_MESSAGES: Final = 2_000
MAX_DOCUMENTS: Final = 1_000

_OBJECTS: Final[Schema] = {"type": "array", "items": {"type": "object"}}
_MESSAGES: Final[Schema] = {"type": "array", "minItems": 1, "maxItems": MAX_MESSAGES, "items": ref("RunMessage")}

SCHEMAS: Final[dict[str, Schema]] = {
    "RunMessage": closed(
        {
            "role": {"type": "string", "enum": ["system", "developer", "user", "assistant"]},
            "content": {
                "description": "a text, or its parts; calls and results are made by the run itself",
                "anyOf": [TEXT, {"type": "array", "items": closed({"type": {"const": "text"}, "text": TEXT})}],
            },
        },
        "role",
        "content",
    ),
    "RunOpening": closed(
        {
            "messages": _MESSAGES,
            "documents": {
                "type": "array",
                "maxItems": MAX_DOCUMENTS,
                "items": {"type": "string"},
                "description": "texts that the caller retrieved; they are untrusted",
            },
            "route": {**NAME, "description": "a route of the configuration; `default` where it is left out"},
            "id": {**NAME, "description": "makes the request idempotent; drawn where it is left out"},
        },
        "messages",
    ),
    "Run": closed(
        {
            "id": TEXT,
            "status": {"type": "string", "enum": ["running", "paused", "completed", "refused", "failed"]},
            "route": TEXT,
            "output": nullable(TEXT),
            "reason": TEXT,
            "message": TEXT,
            "model": nullable(TEXT),
            "labels": {"type": "object"},
            "usage": {"type": "object"},
            "cost": {**WHOLE, "description": "in millionths of the price list's currency"},
            "approvals": _OBJECTS,
            "events": _OBJECTS,
        },
        "id",
        "status",
    ),
    "ChatRequest": {
        **optional(
            {
                "model": {**NAME, "description": "the route"},
                "messages": _MESSAGES,
                "stream": {"type": "boolean"},
                "stream_options": {"type": "object"},
                "max_tokens": WHOLE,
                "max_completion_tokens": WHOLE,
                "temperature": {"type": "number"},
                "top_p": {"type": "number"},
                "user": TEXT,
            }
        ),
        "required": ["model", "messages"],
    },
    "ChatAnswer": {"type": "object", "description": "an answer in the shape of chat completions, and `aegis`"},
}
