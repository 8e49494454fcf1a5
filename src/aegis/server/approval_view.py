"""An approval as it is shown: everything to approvers, and to an agent the state of its own."""

from __future__ import annotations

from typing import Any

from aegis.approvals.model import Approval
from aegis.core.decision import finding_to_wire
from aegis.core.times import rfc3339
from aegis.gate.record import findings_of


def state_at(approval: Approval, now: int) -> str:
    """The state at `now` (microseconds since the epoch): a pending approval whose time is over has expired."""
    return "expired" if approval.state == "pending" and now >= approval.expires_at else approval.state


def status_view(approval: Approval, *, now: int) -> dict[str, Any]:
    """What an agent sees of its own approval."""
    return {
        "id": approval.id,
        "state": state_at(approval, now),
        "call_id": approval.call_id,
        "call_digest": approval.call_digest,
        "expires_at": approval.expires,
    }


def approval_view(approval: Approval, *, now: int) -> dict[str, Any]:
    """What an approver sees, but for the call's payload."""
    return {
        **status_view(approval, now=now),
        "tool": approval.tool,
        "server": approval.server,
        "agent": approval.agent,
        "principal": approval.principal,
        "session": approval.session or None,
        "decision_id": approval.decision_id,
        "policy_digest": approval.policy_digest,
        "created_at": rfc3339(approval.created_at),
        "resolved_by": approval.resolved_by,
        "resolved_at": None if approval.resolved_at is None else rfc3339(approval.resolved_at),
        "reason": approval.reason,
        "permit": None,
    }


def with_payload(view: dict[str, Any], payload: dict[str, Any] | None) -> dict[str, Any]:
    """The view with the arguments that would run, in full, and the findings; erased ones are absent."""
    if payload is None:
        return {**view, "arguments": None, "preview": {}, "findings": []}
    return {
        **view,
        "arguments": payload.get("patched", payload["arguments"]),
        "preview": {},
        "findings": [finding_to_wire(finding) for finding in findings_of(payload)],
    }
