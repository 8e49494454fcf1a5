"""Who may answer a held call over HTTP: quorum, groups, turns, separation of duties, limits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.served import Answer, Served, served

ARGUMENTS = {"to": "a@example.com", "body": "hello"}
CONFIG = """version: 1
profile: standard
limits: {rate: unlimited}
approvals:
  groups: {payments: [ann, ben], audit: [cay]}
  hourly_limit: 3
  max_pending: 4
  separate_owner: true
tools:
  send_email: {risk: high, irreversible: true, effects: [external_send]}
  pay:
    risk: high
    approvals: {always: true, approvers: ["group:payments", "group:audit"], quorum: 2, session_grant: off}
  post:
    risk: high
    approvals: {always: true, timeout: 2s, on_timeout: next, approvers: ["user:ann", "role:approver"]}
  wipe: {risk: high, approvals: {always: true, approvers: ["user:ann"]}}
policies:
  - name: large
    select: {tool: move_money}
    deny: {properties: {amount: {minimum: 1000}}, required: [amount]}
    outcome: require_approval
    approvals: {approvers: ["user:ben"], timeout: 90s}
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home", CONFIG) as running:
        for name in ("ben", "cay", "dan"):
            running.credentials.add(name, "approver")
        yield running


def hold(gateway: Served, tool: str, call_id: str, key: str = "bot", **members: Any) -> str:
    answer = gateway.decide(tool, call_id=call_id, key=key, **{"arguments": ARGUMENTS, **members})
    assert answer.status == 202, answer.json
    approval: str = answer.json["approval"]["id"]
    return approval


def resolve(gateway: Served, approval: str, key: str, decision: str = "approve", **more: Any) -> Answer:
    return gateway.ask("POST", f"/v1/approvals/{approval}", {"decision": decision, **more}, key=key)


def show(gateway: Served, approval: str, key: str = "ann") -> Any:
    return gateway.ask("GET", f"/v1/approvals/{approval}", key=key).json


def again(gateway: Served, tool: str, call_id: str, **members: Any) -> Any:
    return gateway.decide(tool, call_id=call_id, **{"arguments": ARGUMENTS, **members}).json


def test_a_quorum_needs_different_people_of_the_named_groups(gateway: Served) -> None:
    approval = hold(gateway, "pay", "q-1")
    assert resolve(gateway, approval, "dan").status == 403
    first = resolve(gateway, approval, "ann")
    assert (first.status, first.json["state"], first.json["quorum"]) == (200, "pending", 2)
    assert [vote["by"] for vote in first.json["votes"]] == ["ann"]
    twice = resolve(gateway, approval, "ann")
    assert (twice.status, twice.code) == (409, "already_answered")
    assert again(gateway, "pay", "q-1")["decision"] == "require_approval"
    second = resolve(gateway, approval, "cay")
    assert second.json["state"] == "approved"
    assert again(gateway, "pay", "q-1")["decision"] == "allow"
    receipts = gateway.ask("GET", "/v1/receipts?kind=approval", key="auditor").json["items"]
    assert [(one["action"], one["approvers"]) for one in receipts] == [("approved", ["ann", "cay"]), ("voted", ["ann"])]


def test_one_no_is_enough(gateway: Served) -> None:
    approval = hold(gateway, "pay", "q-2")
    resolve(gateway, approval, "ann")
    assert resolve(gateway, approval, "ben", "deny", reason="unknown payee").json["state"] == "denied"
    assert again(gateway, "pay", "q-2")["reason"] == "approval_denied"


def test_others_have_to_wait_for_their_turn(gateway: Served) -> None:
    approval = hold(gateway, "post", "t-1")
    assert show(gateway, approval)["turn"] == 0
    early = resolve(gateway, approval, "ben")
    assert early.status == 403
    assert "first" in early.json["error"]["message"]
    deadline = time.monotonic() + 20
    while show(gateway, approval)["turn"] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert resolve(gateway, approval, "ben").json["state"] == "approved"
    assert again(gateway, "post", "t-1")["decision"] == "allow"


def test_a_passed_turn_is_on_record_and_the_last_one_expires(gateway: Served) -> None:
    approval = hold(gateway, "post", "t-2")
    answer = gateway.ask("GET", f"/v1/approvals/{approval}?wait=20", key="bot", timeout=30)
    assert answer.json["state"] == "expired"
    assert again(gateway, "post", "t-2")["reason"] == "approval_expired"
    for _ in range(100):
        receipts = gateway.ask("GET", "/v1/receipts?kind=approval", key="auditor").json["items"]
        actions = [one["action"] for one in receipts if one["approval_id"] == approval]
        if actions[:1] == ["expired"]:
            break
        time.sleep(0.05)
    assert actions == ["expired", "passed_on"]


def test_the_owner_of_a_session_answers_none_of_its_calls(gateway: Served) -> None:
    opened = gateway.ask("POST", "/v1/sessions", {"session": "s-own", "task": "mail", "owner": "ben"})
    assert opened.status == 201
    approval = hold(gateway, "send_email", "own-1", session="s-own")
    mine = resolve(gateway, approval, "ben")
    assert (mine.status, mine.code) == (403, "own_session")
    assert show(gateway, approval, "ben")["may_answer"] is False
    assert show(gateway, approval, "cay")["may_answer"] is True
    assert resolve(gateway, approval, "cay").status == 200


def test_beyond_the_hourly_limit_the_call_waits_for_somebody_else(gateway: Served) -> None:
    for number in range(3):
        assert resolve(gateway, hold(gateway, "send_email", f"h-{number}"), "ann").status == 200
    approval = hold(gateway, "send_email", "h-3")
    tired = resolve(gateway, approval, "ann")
    assert (tired.status, tired.code) == (429, "approver_limit")
    shown = show(gateway, approval)
    assert (shown["state"], shown["fatigued"]) == ("pending", ["ann"])
    alarms = gateway.ask("GET", "/v1/receipts?kind=alarm", key="auditor").json["items"]
    assert [(one["action"], one["approvers"]) for one in alarms] == [("approver_fatigue", ["ann"])]
    assert resolve(gateway, approval, "ann").status == 429
    assert resolve(gateway, approval, "ann", "deny").status == 200  # a no is always taken
    other = hold(gateway, "send_email", "h-4")
    assert resolve(gateway, other, "ben").status == 200


def test_pending_calls_of_one_principal_are_capped(gateway: Served) -> None:
    held = [hold(gateway, "send_email", f"c-{number}") for number in range(4)]
    full = gateway.decide("send_email", arguments=ARGUMENTS, call_id="c-4")
    assert (full.status, full.json["decision"], full.json["reason"]) == (429, "block", "rate_limited")
    assert gateway.decide("read_file", call_id="c-5").json["decision"] == "allow"
    assert gateway.decide("send_email", arguments=ARGUMENTS, call_id="c-6", key="other").status == 202
    resolve(gateway, held[0], "ann", "deny")
    assert gateway.decide("send_email", arguments=ARGUMENTS, call_id="c-7").status == 202


def test_a_policy_names_its_own_approvers_beside_those_of_the_tool(gateway: Served) -> None:
    approval = hold(gateway, "move_money", "p-1", arguments={"amount": 5000})
    assert resolve(gateway, approval, "ann").status == 403
    assert show(gateway, approval)["approvers"] == [["role:approver"], ["user:ben"]]
    assert resolve(gateway, approval, "ben").json["state"] == "approved"
    assert again(gateway, "move_money", "p-1", arguments={"amount": 5000})["decision"] == "allow"


def test_whoever_lost_their_standing_did_not_approve(gateway: Served) -> None:
    approval = hold(gateway, "wipe", "l-1")
    assert resolve(gateway, approval, "ann").json["state"] == "approved"
    gateway.credentials.revoke("ann")
    after = gateway.decide("wipe", arguments=ARGUMENTS, call_id="l-1")
    assert after.status == 202
    assert after.json["approval"]["id"] != approval
    assert show(gateway, approval, "ben")["state"] == "cancelled"


def test_what_waits_of_a_stopped_agent_is_cancelled(gateway: Served) -> None:
    approval = hold(gateway, "send_email", "stop-1")
    gateway.ask("POST", "/v1/agents/bot/revoke", {"reason": "odd"}, key="root")
    for _ in range(100):
        state = show(gateway, approval)["state"]
        if state != "pending":
            break
        time.sleep(0.05)
    assert state == "cancelled"
