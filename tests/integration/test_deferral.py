"""Calls that wait for evidence: held, resolved by what arrives, by people or by time, over restarts and processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from aegis.bootstrap.deployment import open_deployment
from aegis.core.call import ToolCall, ToolResult
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.sdk.client import Client
from support.deployments import deployment
from support.served import Served, served

CONFIG = """
version: 1
limits: {rate: unlimited, deferred_chain: 4}
previews: {enabled: false}
insufficient_evidence: defer
tools:
  read_inbox: {risk: low, effects: [read], result: {trust: untrusted, sensitivity: confidential}}
  send_note: {risk: low, effects: [external_send]}
  deploy: {risk: high, irreversible: true, effects: [write]}
  announce: {risk: low, effects: [read]}
policies:
- name: base
  cedar: permit(principal, action, resource);
- name: after-a-turn
  outcome: defer
  cedar: forbid(principal, action, resource) when { context.tool == "announce" && context.session.turns < 2 };
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("gateway") / "home", CONFIG) as running:
        yield running


def decide(gateway: Served, tool: str, call_id: str, *, session: str, key: str = "bot", **members: Any) -> Any:
    body = {"tool": tool, "arguments": {}, "call_id": call_id, "session": session, **members}
    answer = gateway.ask("POST", "/v1/decisions", body, key=key)
    return {"status": answer.status, **answer.json}


def observe(gateway: Served, decision: Any, result: Any = "a letter", *, key: str = "bot") -> Any:
    return gateway.ask("POST", "/v1/results", {"decision_id": decision["decision_id"], "result": result}, key=key).json


def shown(gateway: Served, decision: Any, *, key: str = "ann", wait: int = 0) -> Any:
    return gateway.ask("GET", f"/v1/approvals/{decision['approval']['id']}?wait={wait}", key=key).json


def receipts(gateway: Served, session: str, **filters: str) -> list[Any]:
    query = "".join(f"&{name}={value}" for name, value in filters.items())
    found = gateway.ask("GET", f"/v1/sessions/{session}?limit=100{query}", key="auditor").json["items"]
    return [one for one in reversed(found) if "deferral" in one]


def test_a_call_made_of_a_result_waits_for_it_and_runs_when_it_is_there(gateway: Served) -> None:
    first = decide(gateway, "read_inbox", "a1", session="s")
    held = decide(gateway, "send_note", "a2", session="s", depends_on=["a1"])
    assert (held["status"], held["decision"], held["verdict"]) == (202, "require_approval", "insufficient_evidence")
    assert (held["reason"], held["missing"]) == ("deferred", ["result:a1"])
    assert held["approval"]["waiting_for"] == ["result:a1"]
    waiting = shown(gateway, held)
    assert (waiting["kind"], waiting["state"], waiting["waiting_for"]) == ("deferral", "pending", ["result:a1"])
    assert 110 < _seconds(waiting) <= 120
    assert shown(gateway, held, key="bot")["kind"] == "deferral"
    assert decide(gateway, "send_note", "a2", session="s", depends_on=["a1"])["approval"] == held["approval"]
    observe(gateway, first)
    resolved = shown(gateway, held)
    assert (resolved["state"], resolved["resolved_by"]) == ("approved", "evidence")
    again = decide(gateway, "send_note", "a2", session="s")
    assert (again["status"], again["decision"], again["reason"]) == (200, "allow", "none")
    assert observe(gateway, again, "sent")["decision"] == "allow"
    said = [(one["kind"], one.get("action"), one["deferral"]["resolution"]) for one in receipts(gateway, "s")]
    assert said == [
        ("decision", None, "pending"),
        ("approval", "approved", "evidence"),
        ("decision", None, "evidence"),
    ]
    assert {one["deferral"]["reason"] for one in receipts(gateway, "s")} == {"result"}
    assert decide(gateway, "send_note", "a3", session="s", depends_on=["a1", "a2"])["decision"] == "allow"


def _seconds(approval: Any) -> float:
    return (datetime.fromisoformat(approval["expires_at"]) - datetime.fromisoformat(approval["created_at"])).seconds


def test_evidence_that_comes_twice_resolves_once(gateway: Served) -> None:
    first = decide(gateway, "read_inbox", "b1", session="twice")
    held = decide(gateway, "send_note", "b2", session="twice", depends_on=["b1"])
    answers = [observe(gateway, first) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert shown(gateway, held)["state"] == "approved"
    assert len([one for one in receipts(gateway, "twice") if one.get("action") == "approved"]) == 1
    decided = [decide(gateway, "send_note", "b2", session="twice", depends_on=["b1"]) for _ in range(2)]
    assert decided[0]["decision_id"] == decided[1]["decision_id"] != held["decision_id"]


def test_a_call_that_is_made_again_without_what_it_depends_on_waits_all_the_same(gateway: Served) -> None:
    decide(gateway, "read_inbox", "c1", session="sly")
    decide(gateway, "send_note", "c2", session="sly", depends_on=["c1"], unresolved=["/to"])
    again = decide(gateway, "send_note", "c2", session="sly")
    assert (again["status"], again["reason"]) == (202, "deferred")


def test_what_depends_on_a_deferred_call_waits_with_it_and_others_go_on(gateway: Served) -> None:
    first = decide(gateway, "read_inbox", "d1", session="chain")
    decide(gateway, "send_note", "d2", session="chain", depends_on=["d1"])
    third = decide(gateway, "send_note", "d3", session="chain", depends_on=["d2"])
    assert (third["reason"], third["approval"]["waiting_for"]) == ("deferred", ["result:d2"])
    assert decide(gateway, "read_inbox", "d4", session="chain")["decision"] == "allow"
    observe(gateway, first)
    assert shown(gateway, third)["state"] == "pending"
    second = decide(gateway, "send_note", "d2", session="chain")
    assert second["decision"] == "allow"
    observe(gateway, second, "sent")
    assert shown(gateway, third)["resolved_by"] == "evidence"
    assert decide(gateway, "send_note", "d3", session="chain")["decision"] == "allow"


def test_a_chain_has_an_end(gateway: Served) -> None:
    decide(gateway, "read_inbox", "e0", session="long")
    for number in range(1, 5):
        held = decide(gateway, "send_note", f"e{number}", session="long", depends_on=[f"e{number - 1}"])
        assert held["reason"] == "deferred"
    beyond = decide(gateway, "send_note", "e5", session="long", depends_on=["e4"])
    assert (beyond["decision"], beyond["reason"]) == ("block", "chain_blocked")
    other = decide(gateway, "send_note", "e6", session="long", depends_on=["e5"])
    assert (other["decision"], other["reason"]) == ("block", "chain_blocked")  # what it is made of never ran


def test_a_chain_of_calls_that_take_one_anothers_place_has_an_end(gateway: Served) -> None:
    decide(gateway, "send_note", "f0", session="places", unresolved=["/to"])
    for number in range(1, 4):
        held = decide(
            gateway, "send_note", f"f{number}", session="places", unresolved=["/to"], resolves=f"f{number - 1}"
        )
        assert held["reason"] == "deferred"
    beyond = decide(gateway, "send_note", "f4", session="places", unresolved=["/to"], resolves="f3")
    assert beyond["reason"] == "chain_blocked"


def test_a_call_with_its_arguments_filled_in_takes_the_place_of_the_deferred_one(gateway: Served) -> None:
    held = decide(gateway, "send_note", "g1", session="filled", arguments={"to": "<to>"}, unresolved=["/to"])
    assert (held["reason"], held["approval"]["waiting_for"]) == ("deferred", ["evidence:/to"])
    after = decide(gateway, "send_note", "g2", session="filled", depends_on=["g1"])
    filled = decide(gateway, "send_note", "g3", session="filled", arguments={"to": "a@example.com"}, resolves="g1")
    assert filled["decision"] == "allow"
    gone = shown(gateway, held)
    assert (gone["state"], gone["replaced_by"]) == ("cancelled", "g3")
    assert [one["deferral"]["resolution"] for one in receipts(gateway, "filled", call_id="g1")] == [
        "pending",
        "replaced",
    ]
    assert shown(gateway, after)["state"] == "pending"
    observe(gateway, filled, "sent")  # the result of the call that took the place
    assert shown(gateway, after)["resolved_by"] == "evidence"


@pytest.mark.parametrize(
    "members",
    [
        {"depends_on": ["nobody"]},
        {"resolves": "nobody"},
        {"resolves": "h1"},
        {"depends_on": ["h9"]},
        {"depends_on": "h1"},
        {"depends_on": [1]},
        {"depends_on": [f"c{number}" for number in range(65)]},
        {"resolves": ""},
    ],
    ids=str,
)
def test_what_names_no_such_call_is_refused(gateway: Served, members: dict[str, Any]) -> None:
    decide(gateway, "read_inbox", "h1", session="bad")
    assert decide(gateway, "send_note", "h9", session="bad", **members)["status"] == 422


def test_a_call_of_another_tool_or_principal_takes_nobodys_place(gateway: Served) -> None:
    held = decide(gateway, "send_note", "i1", session="own", unresolved=["/to"])
    assert decide(gateway, "read_inbox", "i2", session="own", resolves="i1")["status"] == 422
    assert decide(gateway, "send_note", "i3", session="own", resolves="i1", key="other")["status"] == 422
    assert decide(gateway, "send_note", "i4", session="elsewhere", resolves="i1")["status"] == 422
    assert shown(gateway, held)["state"] == "pending"


def test_a_turn_ends_the_wait_of_a_policy_that_reads_turns(gateway: Served) -> None:
    assert gateway.ask("POST", "/v1/sessions", {"session": "talk", "task": "tell everybody"}).status == 201
    held = decide(gateway, "announce", "j1", session="talk")
    assert (held["reason"], held["approval"]["waiting_for"]) == ("deferred", ["session:turns"])
    gateway.ask("POST", "/v1/sessions/talk/turns", {"text": "yes, now"})
    assert shown(gateway, held)["resolved_by"] == "evidence"
    assert decide(gateway, "announce", "j1", session="talk")["decision"] == "allow"


def test_evidence_that_blocks_cancels_and_the_call_is_decided_by_it(gateway: Served) -> None:
    decide(gateway, "read_inbox", "k1", session="gone")
    held = decide(gateway, "send_note", "k2", session="gone", depends_on=["k1"])
    after = decide(gateway, "send_note", "k3", session="gone", depends_on=["k2"])
    place = f"/v1/approvals/{held['approval']['id']}"
    assert gateway.ask("POST", place, {"decision": "deny"}, key="ann").status == 200
    assert decide(gateway, "send_note", "k2", session="gone")["reason"] == "approval_denied"
    ended = decide(gateway, "send_note", "k3", session="gone", depends_on=["k2"])
    assert (ended["decision"], ended["reason"]) == ("block", "chain_blocked")
    assert shown(gateway, after)["state"] == "cancelled"


def test_an_approver_releases_what_waits_for_evidence(gateway: Served) -> None:
    decide(gateway, "read_inbox", "l1", session="asked")
    held = decide(gateway, "send_note", "l2", session="asked", depends_on=["l1"])
    place = f"/v1/approvals/{held['approval']['id']}"
    assert gateway.ask("POST", place, {"decision": "approve"}, key="bot").status == 403
    assert gateway.ask("POST", place, {"decision": "approve"}, key="ann").json["resolved_by"] == "ann"
    released = decide(gateway, "send_note", "l2", session="asked", depends_on=["l1"])
    assert (released["decision"], bool(released["permit"])) == ("allow", True)
    said = [one["deferral"]["resolution"] for one in receipts(gateway, "asked", call_id="l2")]
    assert said == ["pending", "approver", "approver"]


def test_a_call_that_people_hold_too_is_no_deferral(gateway: Served) -> None:
    decide(gateway, "read_inbox", "m1", session="both")
    held = decide(gateway, "deploy", "m2", session="both", depends_on=["m1"])
    assert (held["reason"], shown(gateway, held)["kind"]) == ("irreversible", "approval")


def test_calls_without_a_session_wait_as_well(gateway: Served) -> None:
    body = {"tool": "read_inbox", "arguments": {}, "call_id": "n1"}
    first = gateway.ask("POST", "/v1/decisions", body).json
    body = {"tool": "send_note", "arguments": {}, "call_id": "n2", "depends_on": ["n1"]}
    assert gateway.ask("POST", "/v1/decisions", body).json["reason"] == "deferred"
    observe(gateway, first)
    assert gateway.ask("POST", "/v1/decisions", body).json["decision"] == "allow"


def test_whoever_waits_for_the_approval_hears_of_the_evidence(gateway: Served) -> None:
    first = decide(gateway, "read_inbox", "o1", session="heard")
    held = decide(gateway, "send_note", "o2", session="heard", depends_on=["o1"])
    later = threading.Timer(0.2, observe, (gateway, first))
    later.start()
    assert shown(gateway, held, wait=20)["state"] == "approved"
    later.join()


SHORT = CONFIG + "approvals: {defer_timeout: 1s}\n"


def test_time_ends_the_wait_with_a_block_also_over_a_restart(tmp_path: Path) -> None:
    with served(tmp_path / "home", CONFIG) as gateway:
        first = decide(gateway, "read_inbox", "p1", session="s")
        held = decide(gateway, "send_note", "p2", session="s", depends_on=["p1"])
    with served(tmp_path / "home", SHORT) as gateway:
        assert shown(gateway, held)["state"] == "pending"
        again = decide(gateway, "send_note", "p2", session="s", depends_on=["p1"])
        assert again["approval"] == held["approval"]
        late = decide(gateway, "send_note", "p3", session="s", depends_on=["p1"])
        assert shown(gateway, late, wait=20)["state"] == "expired"
        ended = decide(gateway, "send_note", "p3", session="s", depends_on=["p1"])
        assert (ended["decision"], ended["reason"]) == ("block", "approval_expired")
        said = [one["deferral"]["resolution"] for one in receipts(gateway, "s", call_id="p3")]
        assert said == ["pending", "timeout"]
        observe(gateway, first)
        assert shown(gateway, held)["resolved_by"] == "evidence"
        assert decide(gateway, "send_note", "p3", session="s")["decision"] == "block"


def test_evidence_that_another_process_records_ends_the_wait(tmp_path: Path) -> None:
    with served(tmp_path / "home", CONFIG) as gateway:
        first = decide(gateway, "read_inbox", "q1", session="s")
        second = decide(gateway, "read_inbox", "q2", session="s")
        held = decide(gateway, "send_note", "q3", session="s", depends_on=["q1"])
        lost = decide(gateway, "send_note", "q4", session="s", depends_on=["q2"])
        beside = open_deployment(tmp_path / "home" / "aegis.yaml", tmp_path / "home")
        try:
            bot = Principal(id="bot", roles=frozenset({"agent"}), agent="bot")
            beside.gate.observe(ToolResult(decision_id=first["decision_id"], result="a letter"), principal=bot)
            assert shown(gateway, held)["resolved_by"] == "evidence"  # by whoever recorded it, at once
            beside.gate.results.settle = None  # as if that process ended between the record and the look
            beside.gate.observe(ToolResult(decision_id=second["decision_id"], result="a letter"), principal=bot)
            call = ToolCall(tool="send_note", call_id="q3", session="s", depends_on=("q1",))
            decisions = [
                beside.gate.decide(call, principal=bot).decision_id,
                decide(gateway, "send_note", "q3", session="s", depends_on=["q1"])["decision_id"],
            ]
            assert decisions[0] == decisions[1]
        finally:
            beside.close()
        assert shown(gateway, lost, wait=30)["resolved_by"] == "evidence"


def test_without_a_gateway_a_caller_that_waits_is_let_go_by_the_result(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home", CONFIG)
    try:
        gate = place.gate
        first = gate.decide(ToolCall(tool="read_inbox", call_id="r1", session="s"))
        call = ToolCall(tool="send_note", call_id="r2", session="s", depends_on=("r1",))
        held = gate.decide(call)
        assert (held.reason.value, held.approval and held.approval.kind) == ("deferred", "deferral")
        assert gate.wait(call, held, timeout=0).decision_id == held.decision_id
        gate.observe(ToolResult(decision_id=first.decision_id, result="a letter"))
        assert gate.wait(call, held, timeout=10).allowed
    finally:
        place.close()


def test_a_client_says_what_a_call_depends_on_and_reads_what_it_waits_for(gateway: Served) -> None:
    client = Client(f"http://127.0.0.1:{gateway.port}", api_key=gateway.credentials.text("bot"))
    try:
        first = client.decide(ToolCall(tool="read_inbox", call_id="t1", session="client"))
        call = ToolCall(tool="send_note", call_id="t2", session="client", depends_on=("t1",), unresolved=("/to",))
        held = client.decide(call)
        assert held.approval is not None
        assert held.approval.waiting_for == ("evidence:/to", "result:t1")
        client.observe(ToolResult(decision_id=first.decision_id, result="a letter"))
        filled = ToolCall(
            tool="send_note", arguments={"to": "a@example.com"}, call_id="t3", session="client", resolves="t2",
            depends_on=("t1",),
        )  # fmt: skip
        assert client.decide(filled).allowed
        with pytest.raises(InvalidCall):
            client.decide(ToolCall(tool="send_note", call_id="t4", session="client", depends_on=("nobody",)))
    finally:
        client.close()
