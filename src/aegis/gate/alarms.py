"""Alarms: what should not have happened, and happened outside of every decision."""

from __future__ import annotations

from aegis.audit.writer import Unit
from aegis.core.outcome import Reason
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.gate.ids import new_id


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
