"""Messages that leave the deployment."""

from __future__ import annotations

from typing import Final

from aegis.server.schemas.common import ID, TEXT, TIME, Schema, closed, listing

STATES: Final = ("due", "dead")
SCHEMAS: Final[dict[str, Schema]] = {
    "Delivery": closed(
        {
            "id": ID,
            "state": {"type": "string", "enum": list(STATES)},
            "event": TEXT,
            "target": TEXT,
            "created_at": TIME,
            "due_at": TIME,
            "attempts": {"type": "integer", "minimum": 0},
            "error": TEXT,
        }
    ),
    "Deliveries": listing("Delivery"),
}
