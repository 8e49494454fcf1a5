"""What a gate tells those who listen, after it was recorded: never before, and never instead."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from aegis.core.decision import Decision
from aegis.core.receipt import Recorded


class Event(Struct, frozen=True, kw_only=True):
    """One recorded receipt: its members without position and signature, and where it ended up.

    `decision` is present for kind `decision`; `seconds` is how long deciding took.
    """

    kind: str
    members: dict[str, Any]
    recorded: Recorded | None
    decision: Decision | None = None
    seconds: float = 0.0


Listener = Callable[[Event], None]

_log = logging.getLogger("aegis.gate")


def notify(listeners: Iterable[Listener], event: Event) -> None:
    """Tell every listener; one that fails is logged and does not undo what is already recorded."""
    for listener in listeners:
        try:
            listener(event)
        except Exception:
            _log.exception("a listener failed", extra={"kind": event.kind})
