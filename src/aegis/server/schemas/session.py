"""Sessions."""

from __future__ import annotations

from typing import Final

from aegis.core.call import MAX_TASK_CHARS
from aegis.server.schemas.common import NAME, TEXT, WHOLE, Schema, closed, later, listing, nullable, optional, ref

SCHEMAS: Final[dict[str, Schema]] = {
    "SessionOpening": optional(
        {
            "session": {**NAME, "description": "its name under this principal; drawn where it is left out"},
            "task": {"type": "string", "maxLength": MAX_TASK_CHARS, "description": "what the user asked for"},
            "available_tools": later("the tools that the agent can call"),
            "mounts": later("the folders that the agent can see"),
            "mission": later("the mission that the session serves"),
            "proof": later("proof that the mission is the agent's"),
        }
    ),
    "SessionOpened": closed({"session": TEXT, "receipt": ref("ReceiptRef")}),
    "SessionRow": closed(
        {"session": TEXT, "principal": TEXT, "agent": TEXT, "first": WHOLE, "last": WHOLE, "count": WHOLE}
    ),
    "Sessions": listing("SessionRow"),
    "Trace": closed({"session": TEXT, "items": {"type": "array", "items": ref("Receipt")}, "next": nullable(TEXT)}),
}
