"""Permits that tools demand."""

from __future__ import annotations

from typing import Final

from aegis.keys.jws import MAX_CHARS
from aegis.server.schemas.common import ANY_OBJECT, ID, NAME, Schema, closed

SCHEMAS: Final[dict[str, Schema]] = {
    "PermitCheck": closed(
        {
            "permit": {"type": "string", "minLength": 1, "maxLength": MAX_CHARS, "description": "compact JWS"},
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
