"""What a gate tells those who listen, after it was recorded: never before, and never instead."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from msgspec import Struct

from aegis.core.decision import Decision
from aegis.core.outcome import Reason
from aegis.core.principal import Principal
from aegis.core.receipt import Draft, Recorded
from aegis.log.writer import Unit

# Identifiers that sort by the time they were made, so that an index over them grows at its end.

_RANDOM_BYTES: Final = 10
_AT_ONCE: Final = 64  # asking the system costs more than the bytes do

_pool: Iterator[str] = iter(())


def new_id() -> str:
    """A fresh identifier as 32 hex digits: 48 bits of milliseconds, then 80 random bits."""
    return f"{time.time_ns() // 1_000_000:012x}{next(_pool, None) or _refilled()}"


def _refilled() -> str:
    """One piece of new random bytes; the others wait in the pool, each for whoever takes it."""
    global _pool
    data = os.urandom(_RANDOM_BYTES * (_AT_ONCE + 1)).hex()
    size = 2 * _RANDOM_BYTES
    _pool = iter([data[at : at + size] for at in range(size, len(data), size)])
    return data[:size]


def _after_fork() -> None:
    """A child takes none of the bytes that its parent will use."""
    global _pool
    _pool = iter(())


os.register_at_fork(after_in_child=_after_fork)


# Alarms: what should not have happened, and happened outside of every decision.


def uncovered(tool: str, *, session: str | None, principal: Principal) -> Unit:
    """The unit that records that the body of a tool ran without a decision."""
    return _alarm(principal, session, tool=tool, action="uncovered", reason=Reason.INSUFFICIENT_EVIDENCE.value)


def refused_tool(tool: str, *, server: str, reason: Reason, session: str | None, principal: Principal) -> Unit:
    """The unit that records that a call was refused for what its tool says about itself, undecided and not made."""
    return _alarm(principal, session, tool=tool, server=server, action="tool-refused", reason=reason.value)


def _alarm(principal: Principal, session: str | None, **said: str) -> Unit:
    members = {
        "kind": "alarm",
        "receipt_id": new_id(),
        "principal": principal.id,
        "agent": principal.agent,
        "session": session,
        **said,
    }
    return Unit(apply=lambda _: [Draft(members={name: one for name, one in members.items() if one is not None})])


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
About = tuple[str, Listener]  # a listener that hears of receipts with that member alone

_log = logging.getLogger("aegis.gate")


def notify(listeners: Iterable[Listener | About], event: Event) -> None:
    """Tell every listener; one that fails is logged and does not undo what is already recorded."""
    for listener in listeners:
        member, tell = listener if isinstance(listener, tuple) else ("", listener)
        if member and member not in event.members:
            continue
        try:
            tell(event)
        except Exception:
            _log.exception("a listener failed", extra={"kind": event.kind})
