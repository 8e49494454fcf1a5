"""Sessions."""

from __future__ import annotations

from typing import Final

from aegis.core.call import MAX_TASK_CHARS
from aegis.server.schemas.common import NAME, TEXT, WHOLE, Schema, closed, listing, nullable, optional, ref

SCHEMAS: Final[dict[str, Schema]] = {
    "SessionOpening": optional(
        {
            "session": {**NAME, "description": "its name under this principal; drawn where it is left out"},
            "task": {"type": "string", "maxLength": MAX_TASK_CHARS, "description": "what the user asked for"},
            "available_tools": {"description": "refused by this version"},
            "mounts": {"description": "refused by this version"},
            "mission": {"description": "refused by this version"},
            "proof": {"description": "refused by this version"},
        }
    ),
    "SessionOpened": closed({"session": TEXT, "receipt": ref("ReceiptRef")}),
    "SessionRow": closed(
        {"session": TEXT, "principal": TEXT, "agent": TEXT, "first": WHOLE, "last": WHOLE, "count": WHOLE}
    ),
    "Sessions": listing("SessionRow"),
    "Trace": closed({"session": TEXT, "items": {"type": "array", "items": ref("Receipt")}, "next": nullable(TEXT)}),
}
