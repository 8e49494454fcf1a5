"""What a client asks of a run, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aegis.runs.guard import Message
from aegis.runs.state import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """What a client asks for: messages in the shape of chat completions, and texts that it retrieved."""

    messages: tuple[Message, ...]
    documents: tuple[str, ...] = ()
    route: str = "default"
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunAnswer:
    """Where a run stands. `held` names the approvals that it waits for; `output` is there once it completed."""

    run_id: str
    status: Status
    route: str
    output: str = ""
    reason: str = "none"
    message: str = ""
    model: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    cost: int = 0
    held: tuple[Mapping[str, str], ...] = ()
    events: tuple[Mapping[str, Any], ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """The answer as JSON."""
        return {
            "id": self.run_id,
            "status": self.status,
            "route": self.route,
            "output": self.output if self.status == "completed" else None,
            "reason": self.reason,
            "message": self.message,
            "model": self.model or None,
            "labels": dict(self.labels),
            "usage": dict(self.usage),
            "cost": self.cost,
            "approvals": [dict(held) for held in self.held],
            "events": [dict(event) for event in self.events],
        }
