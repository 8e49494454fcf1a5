"""The closed sets that every decision is made of, and one safe sentence for each reason.

`Outcome` and `Verdict` are ordered so that combining is `max`; the words are those of the wire.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, Literal


class _Worded(IntEnum):
    """A number by which values are ordered, with its word on the wire: a plain attribute, read many times a call."""

    word: str

    def __init__(self, value: int) -> None:
        self.word = self.name.lower()


class Outcome(_Worded):
    """What happens to a call, from least to most restrictive."""

    ALLOW = 0
    SANITIZE = 1
    REQUIRE_APPROVAL = 2
    BLOCK = 3


class Verdict(_Worded):
    """The evidence axis: a call that could not be evaluated is never called compliant."""

    COMPLIANT = 0
    INSUFFICIENT_EVIDENCE = 1
    VIOLATION = 2


class Risk(_Worded):
    """Risk tier of a call, and severity of a finding."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    CRITICAL = 3


class Reason(str, Enum):
    """Why a call was not simply allowed; closed, and safe to show to an agent. `word` is the value, in less time."""

    word: str

    def __init__(self, value: str) -> None:
        self.word = value

    NONE = "none"
    POLICY_DENIED = "policy_denied"
    UNREGISTERED_TOOL = "unregistered_tool"
    RISK_CEILING = "risk_ceiling"
    IRREVERSIBLE = "irreversible"
    SCHEMA_INVALID = "schema_invalid"
    ATTACK_DETECTED = "attack_detected"
    SENSITIVE_DATA = "sensitive_data"
    EXFILTRATION = "exfiltration"
    SCOPE_VIOLATION = "scope_violation"
    BUDGET_EXHAUSTED = "budget_exhausted"
    RATE_LIMITED = "rate_limited"
    REVOKED = "revoked"
    INSUFFICIENT_EVIDENCE = "insufficient_evidence"
    JUDGE_REJECTED = "judge_rejected"
    JUDGE_FAILED = "judge_failed"
    APPROVAL_REQUIRED = "approval_required"
    APPROVAL_DENIED = "approval_denied"
    APPROVAL_EXPIRED = "approval_expired"
    APPROVAL_CANCELLED = "approval_cancelled"
    CHAIN_BLOCKED = "chain_blocked"
    PROOF_INVALID = "proof_invalid"
    MISSION_INVALID = "mission_invalid"
    TOOL_CHANGED = "tool_changed"
    POSTCONDITION_FAILED = "postcondition_failed"
    CONFLICT = "conflict"
    ANOMALY = "anomaly"
    LOOP = "loop"
    UNAVAILABLE = "unavailable"
    UNTRUSTED_VALUE = "untrusted_value"
    UNLICENSED = "unlicensed"
    DEFERRED = "deferred"


EvidencePolicy = Literal["fail-closed", "require-approval", "defer", "fail-open-with-attestation"]

Category = Literal[
    "sql_injection", "path_traversal", "shell_injection", "prompt_injection", "sensitive_file",
    "data_exfiltration", "pii", "secret", "ssrf", "destructive", "supply_chain", "code_injection",
    "deserialization", "obfuscation", "resource_limit", "policy", "scope", "budget", "rate",
    "anomaly", "dataflow",
]  # fmt: skip

Effect = Literal["read", "write", "network", "exec", "external_send"]
EFFECTS: Final[tuple[Effect, ...]] = ("read", "write", "network", "exec", "external_send")

Role = Literal["agent", "tool", "approver", "auditor", "issuer", "admin"]
ROLES: Final[tuple[Role, ...]] = ("agent", "tool", "approver", "auditor", "issuer", "admin")

_BY_WORD: Final = {outcome.word: outcome for outcome in Outcome}
_RISK_BY_WORD: Final = {risk.word: risk for risk in Risk}
_VERDICT_BY_WORD: Final = {verdict.word: verdict for verdict in Verdict}


def outcome_of(word: str) -> Outcome:
    """The outcome that a wire word names; raises `ValueError` for any other word."""
    if word not in _BY_WORD:
        raise ValueError(f"`{word}` is not an outcome")
    return _BY_WORD[word]


def risk_of(word: str) -> Risk:
    """The tier that a wire word names; raises `ValueError` for any other word."""
    if word not in _RISK_BY_WORD:
        raise ValueError(f"`{word}` is not a risk tier")
    return _RISK_BY_WORD[word]


def verdict_of(word: str) -> Verdict:
    """The verdict that a wire word names; raises `ValueError` for any other word."""
    if word not in _VERDICT_BY_WORD:
        raise ValueError(f"`{word}` is not a verdict")
    return _VERDICT_BY_WORD[word]


# No matched text, pattern, path, digest or rule id.

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
    Reason.REVOKED: "this agent, its session or mission, or this tool has been stopped",
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
    Reason.LOOP: "the same was asked for many times within a short time",
    Reason.ANOMALY: "this call is unlike what this agent usually does",
    Reason.UNAVAILABLE: "the call could not be checked or recorded, so it was not made; try again later",
    Reason.UNTRUSTED_VALUE: "a value of this call came from what was read and not from the user, so a person decides",
    Reason.UNLICENSED: "the user did not ask for a call of this kind, so a person has to approve it",
    Reason.DEFERRED: "the call waits for evidence that is still to come; make it again later",
}

_SANITIZED: Final = "the call may run with the changed arguments that came with this decision"


def message_for(outcome: Outcome, reason: Reason) -> str:
    """The sentence for an agent."""
    return _SANITIZED if outcome is Outcome.SANITIZE else MESSAGES[reason]
