"""Held calls over HTTP: shown, answered once by somebody else, and resumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.served import Answer, Served, served

ARGUMENTS = {"to": "a@example.com", "body": "hello"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("gateway") / "home") as running:
        running.credentials.add("bot-approver", "agent", "approver", agent="bot")
        yield running


def hold(gateway: Served, call_id: str, **members: Any) -> str:
    answer = gateway.decide("send_email", arguments=ARGUMENTS, call_id=call_id, **members)
    assert answer.status == 202
    approval: str = answer.json["approval"]["id"]
    return approval


def resolve(gateway: Served, approval: str, body: Any, key: str = "ann") -> Answer:
    return gateway.ask("POST", f"/v1/approvals/{approval}", body, key=key)


def test_an_approver_sees_everything_and_an_agent_the_state_of_its_own(gateway: Served) -> None:
    approval = hold(gateway, "see-1", session="s-1")
    full = gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json
    assert full["arguments"] == ARGUMENTS
    assert (full["tool"], full["agent"], full["session"], full["state"]) == ("send_email", "bot", "s-1", "pending")
    own = gateway.ask("GET", f"/v1/approvals/{approval}", key="bot").json
    assert set(own) == {"id", "state", "call_id", "call_digest", "expires_at"}
    assert gateway.ask("GET", f"/v1/approvals/{approval}", key="other").status == 404
    assert gateway.ask("GET", f"/v1/approvals/{approval}", key="auditor").status == 403


def test_the_queue_holds_what_is_pending(gateway: Served) -> None:
    approval = hold(gateway, "queue-1")
    listed = gateway.ask("GET", "/v1/approvals?limit=1000", key="ann").json["items"]
    assert approval in [one["id"] for one in listed]
    assert all(one["state"] == "pending" for one in listed)
    mine = gateway.ask("GET", "/v1/approvals?limit=1000", key="bot").json["items"]
    assert approval in [one["id"] for one in mine]
    assert all("arguments" not in one for one in mine)
    assert gateway.ask("GET", "/v1/approvals", key="other").json["items"] == []
    resolve(gateway, approval, {"decision": "deny"})
    listed = gateway.ask("GET", "/v1/approvals?limit=1000", key="ann").json["items"]
    assert approval not in [one["id"] for one in listed]
    denied = gateway.ask("GET", "/v1/approvals?state=denied&tool=send_email", key="ann").json["items"]
    assert approval in [one["id"] for one in denied]


def test_the_queue_is_paged(gateway: Served) -> None:
    held = {hold(gateway, f"page-{number}", session="paged") for number in range(5)}
    seen: list[str] = []
    cursor = ""
    while True:
        page = gateway.ask("GET", f"/v1/approvals?session=paged&limit=2{cursor}", key="ann").json
        assert len(page["items"]) <= 2
        seen += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert sorted(seen) == sorted(held)


def test_an_approved_call_runs_once_with_a_permit(gateway: Served) -> None:
    approval = hold(gateway, "run-1")
    answer = resolve(gateway, approval, {"decision": "approve", "reason": "it is fine"})
    assert answer.status == 200
    assert (answer.json["state"], answer.json["resolved_by"]) == ("approved", "ann")
    resumed = gateway.decide("send_email", arguments=ARGUMENTS, call_id="run-1")
    assert (resumed.status, resumed.json["decision"]) == (200, "allow")
    assert resumed.json["permit"].count(".") == 2
    again = gateway.decide("send_email", arguments=ARGUMENTS, call_id="run-1")
    assert again.json["decision"] == "block"
    assert "permit" not in again.json
    assert gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json["state"] == "redeemed"


def test_a_denied_call_is_refused(gateway: Served) -> None:
    approval = hold(gateway, "deny-1")
    assert resolve(gateway, approval, {"decision": "deny", "reason": "no"}).json["reason"] == "no"
    resumed = gateway.decide("send_email", arguments=ARGUMENTS, call_id="deny-1").json
    assert (resumed["decision"], resumed["reason"]) == ("block", "approval_denied")


def test_nobody_answers_twice(gateway: Served) -> None:
    approval = hold(gateway, "twice-1")
    assert resolve(gateway, approval, {"decision": "deny"}).status == 200
    for decision in ("approve", "deny"):
        answer = resolve(gateway, approval, {"decision": decision})
        assert (answer.status, answer.code) == (409, "not_pending")


def test_of_many_answers_at_once_one_counts(gateway: Served) -> None:
    approval = hold(gateway, "race-1")
    statuses: list[int] = []

    def answer(decision: str) -> None:
        statuses.append(resolve(gateway, approval, {"decision": decision}).status)

    threads = [threading.Thread(target=answer, args=(("approve", "deny")[n % 2],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [409] * 7


def test_only_an_approver_answers_and_never_for_its_own_call(gateway: Served) -> None:
    approval = hold(gateway, "own-1")
    for key in ("bot", "auditor", "root"):
        assert resolve(gateway, approval, {"decision": "approve"}, key).status == 403
    own = resolve(gateway, approval, {"decision": "approve"}, "bot-approver")
    assert (own.status, own.code) == (403, "own_call")
    assert gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json["state"] == "pending"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"decision": "yes"},
        {"decision": True},
        {"decision": "APPROVE"},
        {"decision": None},
        {"decision": "approve", "force": True},
        {"decision": "approve", "reason": 7},
        {"decision": "approve", "scope": "always"},
        {"decision": "approve", "scope": "session"},  # the call belongs to no session
        {"decision": "approve", "arguments": "to"},
        {"decision": "deny", "arguments": {"to": "b@example.com"}},
        {"decision": "approve", "by": "ann"},
        {"decision": "approve", "approver": "boss"},
        [],
        "approve",
        b"approve",
        b'{"decision": "deny", "decision": "approve"}',
    ],
)
def test_anything_but_approve_or_deny_is_422(gateway: Served, body: Any) -> None:
    approval = hold(gateway, f"bad-{body!r}"[:200])
    answer = resolve(gateway, approval, body)
    assert answer.status == 422
    assert answer.code
    assert gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json["state"] == "pending"


def test_what_was_shown_must_be_what_is_held(gateway: Served) -> None:
    approval = hold(gateway, "shown-1")
    shown = gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json
    other = resolve(gateway, approval, {"decision": "approve", "call_digest": "sha-256:" + "0" * 64})
    assert (other.status, other.code) == (409, "conflict")
    digests = {"call_digest": shown["call_digest"], "policy_digest": shown["policy_digest"]}
    assert resolve(gateway, approval, {"decision": "approve", **digests}).status == 200


def test_an_unknown_approval_is_404(gateway: Served) -> None:
    for path in ("/v1/approvals/none", "/v1/approvals/%00", "/v1/approvals/" + "a" * 200):
        assert gateway.ask("GET", path, key="ann").status == 404
    assert resolve(gateway, "none", {"decision": "approve"}).status == 404


def test_a_long_poll_ends_with_the_answer(gateway: Served) -> None:
    approval = hold(gateway, "poll-1")
    answers: list[Answer] = []
    waiter = threading.Thread(
        target=lambda: answers.append(gateway.ask("GET", f"/v1/approvals/{approval}?wait=30", key="bot", timeout=40))
    )
    waiter.start()
    time.sleep(0.3)
    assert not answers
    resolve(gateway, approval, {"decision": "approve"})
    waiter.join(60)
    assert answers[0].json["state"] == "approved"


def test_a_long_poll_without_an_answer_says_that_it_is_pending(gateway: Served) -> None:
    approval = hold(gateway, "poll-2")
    assert gateway.ask("GET", f"/v1/approvals/{approval}?wait=1", key="bot").json["state"] == "pending"
    for wait in ("-1", "61", "x", "1.5"):
        assert gateway.ask("GET", f"/v1/approvals/{approval}?wait={wait}", key="bot").status == 422


def test_an_approval_expires_by_itself_and_cannot_be_answered_then(tmp_path: Path) -> None:
    config = (
        "version: 1\nprofile: standard\nlimits: {rate: unlimited}\napprovals: {timeout: 1s}\n"
        "tools: {send_email: {risk: high, irreversible: true, effects: [external_send]}}\n"
    )
    with served(tmp_path / "home", config) as gateway:
        approval = hold(gateway, "late-1")
        answer = gateway.ask("GET", f"/v1/approvals/{approval}?wait=10", key="bot")
        assert answer.json["state"] == "expired"
        late = resolve(gateway, approval, {"decision": "approve"})
        assert (late.status, late.code) == (409, "not_pending")
        assert gateway.decide("send_email", arguments=ARGUMENTS, call_id="late-1").json["reason"] == "approval_expired"
        kinds: list[tuple[str, str | None]] = []
        for _ in range(100):
            items = gateway.ask("GET", "/v1/receipts?kind=approval", key="auditor").json["items"]
            kinds = [(one["kind"], one.get("action")) for one in items]
            if kinds:
                break
            time.sleep(0.05)
        assert kinds == [("approval", "expired")]


def test_the_configuration_says_who_approves(tmp_path: Path) -> None:
    config = (
        "version: 1\nprofile: standard\nlimits: {rate: unlimited}\n"
        "tools:\n  send_email: {risk: high, irreversible: true, effects: [external_send],"
        " approvals: {approvers: ['user:boss']}}\n"
    )
    with served(tmp_path / "home", config) as gateway:
        gateway.credentials.add("boss", "approver")
        approval = hold(gateway, "boss-1")
        assert resolve(gateway, approval, {"decision": "approve"}).status == 403
        assert resolve(gateway, approval, {"decision": "approve"}, "boss").status == 200


def test_a_result_counts_once_the_approved_call_was_released_and_not_before(gateway: Served) -> None:
    call: dict[str, Any] = {"arguments": ARGUMENTS, "call_id": "early-result"}
    held = gateway.decide("send_email", **call).json
    result = {"decision_id": held["decision_id"], "result": "sent"}
    for decision in (None, "approve"):
        if decision is not None:
            assert resolve(gateway, held["approval"]["id"], {"decision": decision}).status == 200
        early = gateway.ask("POST", "/v1/results", result)
        assert (early.status, early.code) == (409, "not_allowed")
    assert gateway.decide("send_email", **call).json["decision"] == "allow"
    assert gateway.ask("POST", "/v1/results", result).json["decision"] == "allow"
