"""Claims about held calls, through the gate: what was approved, under which policy, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aegis.approvals.queue import REDEEMABLE_MICROS
from aegis.bootstrap import Deployment
from aegis.bootstrap.deployment import DeployedGate
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome, Reason
from aegis.gate.control import set_agent
from support.approvals import resolve
from support.deployments import deployment
from support.faults import Hands, gate_over

MAIL = ToolCall(tool="send_email", arguments={"to": "a@example.com"}, call_id="m1")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    opened = deployment(tmp_path / "home")
    yield opened
    opened.close()


def approved(place: Deployment, gate: DeployedGate) -> Decision:
    """A held call that a person has approved."""
    held = gate.decide(MAIL)
    assert held.outcome is Outcome.REQUIRE_APPROVAL
    assert held.approval is not None
    resolve(gate, held.approval.id)
    return held


def change(place: Deployment, more: str) -> None:
    assert place.config_path is not None
    place.policy.replace(place.config_path.read_text() + more, by="user:ann")


@pytest.mark.claim("APR-03")
def test_a_policy_that_now_blocks_cancels_an_approval(place: Deployment) -> None:
    approved(place, place.gate)
    change(place, "\nregistry: {max_allowed_tier: medium}\n")
    after = place.gate.decide(MAIL)
    assert (after.outcome, after.reason) == (Outcome.BLOCK, Reason.RISK_CEILING)
    assert after.permit is None


@pytest.mark.claim("APR-03")
def test_a_changed_policy_that_still_asks_opens_a_new_approval(place: Deployment) -> None:
    held = approved(place, place.gate)
    change(place, "\nregistry: {escalation_threshold: medium}\n")
    after = place.gate.decide(MAIL)
    assert after.outcome is Outcome.REQUIRE_APPROVAL
    assert after.approval is not None and held.approval is not None
    assert after.approval.id != held.approval.id


@pytest.mark.claim("APR-03")
def test_an_approved_call_stays_redeemable_for_one_hour(place: Deployment) -> None:
    clock = Hands()
    gate = gate_over(place, clock=clock)
    approved(place, gate)
    assert REDEEMABLE_MICROS == 3_600_000_000
    clock.now += REDEEMABLE_MICROS
    after = gate.decide(MAIL)
    assert (after.outcome, after.reason) == (Outcome.BLOCK, Reason.APPROVAL_EXPIRED)


@pytest.mark.claim("APR-04")
def test_a_stopped_agent_cannot_redeem(place: Deployment) -> None:
    approved(place, place.gate)
    place.gate.record(set_agent("bot", state="revoked", reason="looks wrong", principal="user:ann"))
    after = place.gate.decide(MAIL)
    assert (after.outcome, after.reason) == (Outcome.BLOCK, Reason.REVOKED)
    assert after.permit is None
