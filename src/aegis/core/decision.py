"""The answer to a call, as released: it was appended to the log before anybody saw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from aegis.core.finding import Finding
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.text import mask


class GuardTime(Struct, frozen=True, kw_only=True):
    """What one guard demanded, and how long it took in microseconds."""

    guard: str
    outcome: Outcome
    us: int


class ReceiptRef(Struct, frozen=True, kw_only=True):
    """Where the log keeps the decision."""

    id: str
    index: int
    leaf_hash: str


class OpenedSession(Struct, frozen=True, kw_only=True):
    """An open session, and where the log keeps its opening.

    `fresh` says that it was not open before. Where its mission names a holder key, `audience` is what
    the proofs of its calls are made for, and `number` the first one that is not used.
    """

    session: str
    receipt: ReceiptRef
    fresh: bool
    audience: str | None = None
    number: int = 1


class ParentSession(Struct, frozen=True, kw_only=True):
    """The session that one was opened from, and the call of it that did so, where the host says."""

    session: str
    call_id: str | None = None


class EndedSession(Struct, frozen=True, kw_only=True):
    """A session that has ended, and where the log keeps that; `fresh` says that it was not there before."""

    session: str
    receipt: ReceiptRef
    fresh: bool


class SaidTurn(Struct, frozen=True, kw_only=True):
    """One turn of a session's user, its number, and where the log keeps it; `fresh` says that it was not there."""

    session: str
    turn: int
    receipt: ReceiptRef
    fresh: bool


class ApprovalRef(Struct, frozen=True, kw_only=True):
    """The approval that a held call waits for; `expires_at` is RFC 3339, UTC.

    `waiting_for` is the evidence that a deferred call waits for; one that waits for people has none.
    """

    id: str
    expires_at: str
    waiting_for: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["approval", "deferral"]:
        """What a call waits for: people, or evidence."""
        return "deferral" if self.waiting_for else "approval"

    @property
    def url(self) -> str:
        return f"/v1/approvals/{self.id}"


class DeclaredPlan(Struct, frozen=True, kw_only=True):
    """A plan that a host declared: its digest, and where the log keeps it; `fresh` says that it was not there.

    A plan that lets more through than the one in force waits for a person: then `approval` says where, and the plan
    before it stays in force. The same plan declared again takes effect once the approval was given.
    """

    session: str
    digest: str
    receipt: ReceiptRef | None = None
    fresh: bool = False
    approval: ApprovalRef | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """One decision. `arguments` is present only with `sanitize`: what must be executed instead.

    `receipt` is absent only where nothing could be recorded, and then `outcome` is `block` with
    reason `unavailable`. `missing` names what could not be evaluated.
    """

    outcome: Outcome
    verdict: Verdict
    risk: Risk
    reason: Reason
    message: str
    decision_id: str
    call_id: str
    request_digest: str
    call_digest: str
    policy_digest: str
    salt: str
    arguments: dict[str, Any] | None = None
    approval: ApprovalRef | None = None
    permit: str | None = None
    receipt: ReceiptRef | None = None
    findings: tuple[Finding, ...] = ()
    guards: tuple[GuardTime, ...] = ()
    retry_after: int | None = None
    missing: tuple[str, ...] = ()

    @property
    def decision(self) -> str:
        """`outcome` as the wire writes it: `allow`, `sanitize`, `require_approval` or `block`."""
        return self.outcome.word

    @property
    def allowed(self) -> bool:
        """Whether the tool may run now, with `arguments` if there are any."""
        return self.outcome <= Outcome.SANITIZE

    def to_wire(self, *, findings: bool = False) -> dict[str, Any]:
        """The JSON object of the contract; `findings` only for principals that may read them."""
        wire: dict[str, Any] = {
            "decision": self.outcome.word,
            "verdict": self.verdict.word,
            "risk": self.risk.word,
            "reason": self.reason.word,
            "message": self.message,
            "decision_id": self.decision_id,
            "call_id": self.call_id,
            "request_digest": self.request_digest,
            "call_digest": self.call_digest,
            "policy_digest": self.policy_digest,
            "salt": self.salt,
            "guards": [{"guard": g.guard, "outcome": g.outcome.word, "us": g.us} for g in self.guards],
        }
        if self.missing:
            wire["missing"] = list(self.missing)
        if self.arguments is not None:
            wire["arguments"] = self.arguments
        if self.approval is not None:
            approval = self.approval
            wire["approval"] = {"id": approval.id, "expires_at": approval.expires_at, "url": approval.url}
            if approval.waiting_for:
                wire["approval"] |= {"kind": approval.kind, "waiting_for": list(approval.waiting_for)}
        if self.permit is not None:
            wire["permit"] = self.permit
        if self.receipt is not None:
            receipt = self.receipt
            wire["receipt"] = {"id": receipt.id, "index": receipt.index, "leaf_hash": receipt.leaf_hash}
        if findings:
            wire["findings"] = [finding_to_wire(finding) for finding in self.findings]
        return wire


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultDecision:
    """The answer to a tool result: `result` is present only with `sanitize`.

    `retry_after` is the number of seconds after which a result beyond its agent's rate would be taken.
    """

    outcome: Outcome
    verdict: Verdict
    reason: Reason
    message: str
    result: Any = None
    receipt: ReceiptRef | None = None
    findings: tuple[Finding, ...] = ()
    retry_after: int | None = None

    @property
    def decision(self) -> str:
        """`outcome` as the wire writes it: `allow`, `sanitize` or `block`."""
        return self.outcome.word

    @property
    def allowed(self) -> bool:
        """Whether the model may see the result, or `result` in its place with `sanitize`."""
        return self.outcome <= Outcome.SANITIZE

    def to_wire(self, *, findings: bool = False) -> dict[str, Any]:
        """The JSON object of the contract; `findings` only for principals that may read them."""
        wire: dict[str, Any] = {
            "decision": self.outcome.word,
            "verdict": self.verdict.word,
            "reason": self.reason.word,
            "message": self.message,
        }
        if self.outcome is Outcome.SANITIZE:
            wire["result"] = self.result
        if self.receipt is not None:
            receipt = self.receipt
            wire["receipt"] = {"id": receipt.id, "index": receipt.index, "leaf_hash": receipt.leaf_hash}
        if findings:
            wire["findings"] = [finding_to_wire(finding) for finding in self.findings]
        return wire


def finding_to_wire(finding: Finding, *, reveal: bool = False) -> dict[str, Any]:
    """The JSON object of a finding; evidence is masked unless the caller has the right to reveal it."""
    wire: dict[str, Any] = {
        "guard": finding.guard,
        "rule": finding.rule,
        "category": finding.category,
        "severity": finding.severity.word,
        "outcome": finding.outcome.word,
        "path": finding.path,
        "message": finding.message,
        "evidence": finding.evidence if reveal else mask(finding.evidence),
    }
    if finding.origins:
        wire["origins"] = [{"receipt": receipt, "path": path} for receipt, path in finding.origins]
    return wire
