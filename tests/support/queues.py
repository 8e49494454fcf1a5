"""One approval as the queue stores it, for tests of its transitions."""

from __future__ import annotations

from typing import Any

from aegis.approvals.values import Approval

OPENED = 1_000_000_000_000_000  # microseconds since the epoch
MINUTE = 60_000_000


def held(**members: Any) -> Approval:
    """A pending approval of a call of `bot` for five minutes, but for `members`."""
    known: dict[str, Any] = {
        "id": "a-1",
        "state": "pending",
        "tool": "pay",
        "server": "mcp:bank",
        "agent": "bot",
        "principal": "bot-key",
        "session": "s-1",
        "call_id": "c-1",
        "request_digest": "sha-256:request",
        "call_digest": "sha-256:call",
        "policy_digest": "sha-256:policy",
        "created_at": OPENED,
        "expires_at": OPENED + 5 * MINUTE,
        "decision_id": "d-1",
        "turn_micros": 5 * MINUTE,
    }
    return Approval(**(known | members))
