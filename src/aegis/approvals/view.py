"""An approval as it is shown: everything to approvers, and to an agent the state of its own."""

from __future__ import annotations

from typing import Any

from aegis.approvals.grants import Grant
from aegis.approvals.values import Approval
from aegis.core.decision import finding_to_wire
from aegis.core.times import rfc3339
from aegis.gate.record import findings_of


def status_view(approval: Approval, *, now: int) -> dict[str, Any]:
    """Return what an agent sees of its own approval."""
    view: dict[str, Any] = {
        "id": approval.id,
        "kind": approval.kind,
        "state": approval.state_at(now),
        "call_id": approval.call_id,
        "call_digest": approval.call_digest,
        "expires_at": approval.expires,
    }
    return {**view, "waiting_for": list(approval.waiting_for)} if approval.waiting_for else view


def approval_view(approval: Approval, *, now: int) -> dict[str, Any]:
    """Return what an approver sees, but for what the call holds and what the policy in force says."""
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
        "held_because": approval.reason_held,
        "facts": {
            "risk": approval.risk,
            "effects": list(approval.effects),
            "irreversible": approval.irreversible,
            "files_bound": approval.identities is not None and not approval.loose,
            "working_directory": approval.base or None,
        },
        "quorum": approval.quorum,
        "votes": [{"by": vote.by, "at": rfc3339(vote.at), "scope": vote.scope} for vote in approval.votes],
        "turn": approval.turn_at(now),
        "fatigued": list(approval.fatigued),
        "narrowed": approval.narrowed_by is not None,
        "grant": approval.grant,
        "replaced_by": approval.replaced_by or None,
        "grants": [one.to_wire() for one in approval.grants],
        "resolved_by": approval.resolved_by,
        "resolved_at": None if approval.resolved_at is None else rfc3339(approval.resolved_at),
        "reason": approval.reason,
        "permit": None,
    }


def with_payload(view: dict[str, Any], *, held: dict[str, Any] | None, runs: dict[str, Any] | None) -> dict[str, Any]:
    """Return the view with the arguments that would run, in full, and the findings; erased ones are absent."""
    if held is None:
        return {**view, "arguments": None, "submitted": None, "task": None, "findings": []}
    return {
        **view,
        "arguments": runs,
        "submitted": held["arguments"],
        "task": held.get("claimed", {}).get("task"),
        "findings": [finding_to_wire(finding) for finding in findings_of(held)],
    }


def grant_view(grant: Grant, *, now: int) -> dict[str, Any]:
    """Return a grant as approvers and administrators see it."""
    over = grant.state == "active" and now >= grant.expires_at
    return {
        "id": grant.id,
        "state": "expired" if over else grant.state,
        "approval_id": grant.approval_id,
        "principal": grant.principal,
        "agent": grant.agent,
        "session": grant.session,
        "tool": grant.tool,
        "server": grant.server,
        "call_digest": grant.call_digest,
        "policy_digest": grant.policy_digest,
        "approvers": list(grant.approvers),
        "created_at": rfc3339(grant.created_at),
        "expires_at": rfc3339(grant.expires_at),
        "revoked_by": grant.revoked_by,
    }
