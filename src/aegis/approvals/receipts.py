"""What the log says of an approval: one receipt for each transition, naming who brought it about."""

from __future__ import annotations

from typing import Any

from aegis.approvals.grants import Grant
from aegis.approvals.model import Approval
from aegis.core.receipt import Draft, Kind
from aegis.core.times import rfc3339


def receipt(
    approval: Approval,
    action: str,
    *,
    receipt_id: str,
    principal: str,
    kind: Kind = "approval",
    approvers: tuple[str, ...] = (),
    permit_id: str | None = None,
    grant_id: str | None = None,
) -> Draft:
    """The receipt of `action` on an approval; `principal` brought it about, `approvers` stand behind it."""
    members: dict[str, Any] = {
        "kind": kind,
        "receipt_id": receipt_id,
        "parent": approval.decision_id,
        "principal": principal,
        "agent": approval.agent,
        "call_id": approval.call_id,
        "tool": approval.tool,
        "policy_digest": approval.policy_digest,
        "approval_id": approval.id,
        "action": action,
    }
    if approval.session:
        members["session"] = approval.session
    if approval.server is not None:
        members["server"] = approval.server
    if approvers:
        members["approvers"] = list(approvers)
    if permit_id is not None:
        members["permit_id"] = permit_id
    if grant_id is not None:
        members["grant_id"] = grant_id
    return Draft(members=members)


def grant_receipt(grant: Grant, action: str, *, receipt_id: str, principal: str) -> Draft:
    """The receipt of a grant that was opened or revoked."""
    members: dict[str, Any] = {
        "kind": "grant",
        "receipt_id": receipt_id,
        "principal": principal,
        "agent": grant.agent,
        "session": grant.session,
        "tool": grant.tool,
        "policy_digest": grant.policy_digest,
        "approval_id": grant.approval_id,
        "approvers": list(grant.approvers),
        "grant_id": grant.id,
        "expires": rfc3339(grant.expires_at),
        "action": action,
    }
    if grant.server is not None:
        members["server"] = grant.server
    return Draft(members=members)
