"""One safe sentence for each reason: no matched text, pattern, path, digest or rule id."""

from __future__ import annotations

from typing import Final

from aegis.core.outcome import Outcome, Reason

MESSAGES: Final[dict[Reason, str]] = {
    Reason.NONE: "the call may run",
    Reason.POLICY_DENIED: "a policy of this deployment does not allow this call",
    Reason.UNREGISTERED_TOOL: "this tool is not registered here, so it may not be called",
    Reason.RISK_CEILING: "this call is riskier than this deployment allows",
    Reason.IRREVERSIBLE: "this call cannot be undone, so a person has to approve it",
    Reason.SCHEMA_INVALID: "the arguments do not have the shape that this tool requires",
    Reason.ATTACK_DETECTED: "the arguments look like an attack, so the call was not made",
    Reason.SENSITIVE_DATA: "the call carries data that must not go there",
    Reason.EXFILTRATION: "the call would send data to a place that it must not go to",
    Reason.SCOPE_VIOLATION: "the call touches something outside of what this agent was sent to do",
    Reason.BUDGET_EXHAUSTED: "the budget for this kind of call is used up",
    Reason.RATE_LIMITED: "too many calls in a short time; try again later",
    Reason.REVOKED: "this agent has been stopped by an operator",
    Reason.INSUFFICIENT_EVIDENCE: "the call could not be evaluated as it stands; resolve every argument and try again",
    Reason.JUDGE_REJECTED: "a review of this call rejected it",
    Reason.JUDGE_FAILED: "the review of this call failed, so it was not made",
    Reason.APPROVAL_REQUIRED: "a person has to approve this call",
    Reason.APPROVAL_DENIED: "a person denied this call",
    Reason.APPROVAL_EXPIRED: "nobody approved this call in time",
    Reason.APPROVAL_CANCELLED: "the approval of this call was cancelled",
    Reason.CHAIN_BLOCKED: "an earlier result in this chain blocks further calls",
    Reason.PROOF_INVALID: "the proof that came with this call is not valid",
    Reason.MISSION_INVALID: "the mission of this agent does not cover this call",
    Reason.TOOL_CHANGED: "this tool is not the one that was approved",
    Reason.POSTCONDITION_FAILED: "the result does not meet what was required of it",
    Reason.CONFLICT: "this call id was already used for another call",
    Reason.ANOMALY: "this call is unlike what this agent usually does",
    Reason.UNAVAILABLE: "the call could not be checked or recorded, so it was not made; try again later",
}

_SANITIZED: Final = "the call may run with the changed arguments that came with this decision"


def message_for(outcome: Outcome, reason: Reason) -> str:
    """The sentence for an agent."""
    return _SANITIZED if outcome is Outcome.SANITIZE else MESSAGES[reason]
