from __future__ import annotations

from typing import Any

import pytest

from aegis.core.decision import ApprovalRef, Decision, GuardTime, ReceiptRef, ResultDecision
from aegis.core.finding import Finding
from aegis.core.outcome import Outcome, Reason, Risk, Verdict

FINDING = Finding(
    guard="content", rule="pii-us-ssn", category="pii", severity=Risk.HIGH, outcome=Outcome.BLOCK, path="/to",
    message="a social security number", evidence="078-05-1120",
)  # fmt: skip


def decision(**members: Any) -> Decision:
    return Decision(**{
        "outcome": Outcome.ALLOW, "verdict": Verdict.COMPLIANT, "risk": Risk.LOW, "reason": Reason.NONE, "message": "m",
        "decision_id": "d", "call_id": "c", "request_digest": "r", "call_digest": "k", "policy_digest": "p",
        "salt": "s", **members,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "allowed"),
    [(Outcome.ALLOW, True), (Outcome.SANITIZE, True), (Outcome.REQUIRE_APPROVAL, False), (Outcome.BLOCK, False)],
)
def test_a_call_runs_on_allow_and_sanitize_alone(outcome: Outcome, allowed: bool) -> None:
    told = decision(outcome=outcome)
    assert (told.allowed, told.decision) == (allowed, told.to_wire()["decision"])
    result = ResultDecision(outcome=outcome, verdict=Verdict.COMPLIANT, reason=Reason.NONE, message="")
    assert result.allowed is allowed


def test_the_wire_form_holds_the_members_of_the_contract() -> None:
    full = decision(
        outcome=Outcome.SANITIZE,
        arguments={"a": 1},
        approval=ApprovalRef(id="ap", expires_at="2026-01-01T00:00:00Z"),
        permit="jws",
        receipt=ReceiptRef(id="d", index=41, leaf_hash="ff"),
        findings=(FINDING,),
        guards=(GuardTime(guard="content", outcome=Outcome.ALLOW, us=31),),
    )
    assert full.to_wire() == {
        "decision": "sanitize", "verdict": "compliant", "risk": "low", "reason": "none", "message": "m",
        "decision_id": "d", "call_id": "c", "request_digest": "r", "call_digest": "k", "policy_digest": "p",
        "salt": "s", "arguments": {"a": 1}, "permit": "jws", "receipt": {"id": "d", "index": 41, "leaf_hash": "ff"},
        "approval": {"id": "ap", "expires_at": "2026-01-01T00:00:00Z", "url": "/v1/approvals/ap"},
        "guards": [{"guard": "content", "outcome": "allow", "us": 31}],
    }  # fmt: skip


def test_absent_members_are_left_out() -> None:
    wire = decision(findings=(FINDING,)).to_wire()
    assert not wire.keys() & {"arguments", "approval", "permit", "receipt", "findings"}


def test_findings_are_shown_on_demand_and_masked() -> None:
    shown = decision(findings=(FINDING,)).to_wire(findings=True)["findings"]
    assert shown == [
        {
            "guard": "content", "rule": "pii-us-ssn", "category": "pii", "severity": "high", "outcome": "block",
            "path": "/to", "message": "a social security number", "evidence": "07****20",
        }
    ]  # fmt: skip


def test_a_result_is_in_the_wire_form_with_sanitize_alone() -> None:
    kept = ResultDecision(
        outcome=Outcome.SANITIZE, verdict=Verdict.VIOLATION, reason=Reason.SENSITIVE_DATA, message="m", result=None,
        receipt=ReceiptRef(id="r", index=1, leaf_hash="00"), findings=(FINDING,),
    )  # fmt: skip
    wire = kept.to_wire(findings=True)
    assert wire["result"] is None
    assert wire["receipt"] == {"id": "r", "index": 1, "leaf_hash": "00"}
    assert wire["findings"][0]["evidence"] == "07****20"
    blocked = ResultDecision(
        outcome=Outcome.BLOCK, verdict=Verdict.VIOLATION, reason=Reason.ATTACK_DETECTED, message="m", result="x"
    )
    assert blocked.to_wire() == {
        "decision": "block",
        "verdict": "violation",
        "reason": "attack_detected",
        "message": "m",
    }
