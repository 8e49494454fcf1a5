"""Missions: issuing, delegating, stopping, and the challenge that a session answers."""

from __future__ import annotations

from typing import Final

from aegis.core.call import MAX_NAME_CHARS
from aegis.missions.jws import MAX_CHARS
from aegis.missions.registry import MAX_REASON_CHARS
from aegis.server.schemas.common import NAME, TEXT, TIME, Schema, closed, listing, one_of, optional, ref

TOKEN: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_CHARS, "description": "compact JWS"}
_CLAIMS: Final[Schema] = {
    "type": "object",
    "description": "the members of a mission but for `iss`, `aud`, `iat`, `jti` and `parent`, which are filled in",
}
_REASON: Final[Schema] = {"type": "string", "maxLength": MAX_REASON_CHARS}
_STATE: Final[Schema] = {"type": "string", "enum": ["active", "suspended", "revoked"]}

SCHEMAS: Final[dict[str, Schema]] = {
    "MissionIssue": one_of(
        {
            "mission": {**_CLAIMS, "description": f"{_CLAIMS['description']}; signed here"},
            "token": {**TOKEN, "description": "in place of `mission`: a compact JWS that a trusted issuer signed"},
        }
    ),
    "MissionDelegation": closed(
        {
            "request_id": {**NAME, "maxLength": MAX_NAME_CHARS, "description": "the same one finds the same mission"},
            "mission": _CLAIMS,
        }
    ),
    "MissionIssued": closed(
        {
            "mission_id": TEXT,
            "mission": TOKEN,
            "lineage": {"type": "array", "items": TEXT},
            "remarks": {"type": "array", "items": TEXT},
            "receipt": ref("ReceiptRef"),
        },
        "mission_id",
        "mission",
        "lineage",
        "remarks",
    ),
    "MissionMove": optional({"reason": _REASON}),
    "MissionMoved": closed({"mission_id": TEXT, "state": _STATE, "receipt": ref("ReceiptRef")}),
    "MissionView": closed(
        {"mission_id": TEXT, "state": _STATE, "lineage": {"type": "array", "items": TEXT}, "mission": TOKEN}
    ),
    "Missions": listing("MissionView"),
    "MissionStatus": closed({"status": TOKEN}),
    "MissionStatusTaken": closed({"receipt": ref("ReceiptRef")}),
    "Challenge": closed({"nonce": TEXT, "expires_at": TIME, "audience": TEXT}),
}
