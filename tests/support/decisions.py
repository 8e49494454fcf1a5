"""Decisions as a gateway would write them, for tests that play the gateway."""

from __future__ import annotations

from typing import Any

from aegis.core.canonical import call_digest, canonical

APPROVAL = {"id": "ap-1", "expires_at": "2030-01-01T00:00:00Z", "url": "/v1/approvals/ap-1"}


def digest_of(call: dict[str, Any], arguments: Any = None) -> str:
    """The digest of a call on the wire, with other arguments if there are any."""
    chosen = call["arguments"] if arguments is None else arguments
    return call_digest(server=call.get("server"), tool=call["tool"], arguments=canonical(chosen))


def wire_decision(call: dict[str, Any], outcome: str = "allow", **changes: Any) -> dict[str, Any]:
    """The valid decision on `call`; a change of `None` takes the member away."""
    arguments = changes.get("arguments")
    body = {
        "decision": outcome,
        "verdict": "compliant" if outcome in ("allow", "sanitize") else "violation",
        "risk": "low",
        "reason": "none" if outcome == "allow" else "policy_denied",
        "message": "ok" if outcome == "allow" else "this call is not permitted",
        "decision_id": "d-1",
        "call_id": call["call_id"],
        "request_digest": digest_of(call),
        "call_digest": digest_of(call, arguments),
        "policy_digest": "sha-256:p",
        "salt": "s",
        "receipt": {"id": "r-1", "index": 7, "leaf_hash": "ab"},
        "guards": [{"guard": "content", "outcome": "allow", "us": 31}],
        **({"approval": APPROVAL} if outcome == "require_approval" else {}),
        **changes,
    }
    return {name: value for name, value in body.items() if value is not None}


def wire_result(outcome: str = "allow", **changes: Any) -> dict[str, Any]:
    """The valid answer about a result; a change of `None` takes the member away."""
    body = {
        "decision": outcome,
        "verdict": "compliant" if outcome != "block" else "violation",
        "reason": "none" if outcome == "allow" else "sensitive_data",
        "message": "ok" if outcome == "allow" else "the result was withheld",
        "receipt": {"id": "r-2", "index": 8, "leaf_hash": "cd"},
        **changes,
    }
    return {name: value for name, value in body.items() if value is not None}
