"""The public requirements of Autonomous Action Runtime Management, put to a real gateway.

`docs/aarm.yaml` says which requirement each of these tests is about, and what is not met.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aegis
from aegis.errors import ToolCallBlocked
from aegis.sdk.runtime import RuntimeSettings, open_runtime, replace_runtime
from support.served import Served, served

CONFIG = """
version: 1
limits: {rate: unlimited}
previews: {enabled: false}
tools:
  read_inbox: {risk: low, effects: [read], result: {trust: untrusted, sensitivity: confidential}}
  wipe_disk: {risk: critical}
  deploy: {risk: high, irreversible: true, effects: [write]}
  pay_bill:
    risk: medium
    does: pay
    arguments: {account: {is: account, sink: true}}
  send_note: {risk: low, effects: [external_send], does: send, arguments: {to: {is: email, sink: true}}}
"""
DEFERRING = f"""{CONFIG}
insufficient_evidence: defer
policies:
- name: base
  cedar: permit(principal, action, resource);
- name: nothing-is-deployed-after-untrusted-text
  cedar: forbid(principal, action, resource) when {{ context.tool == "deploy" && context.session.untrusted }};
"""
DRIFTING = """
version: 1
limits: {rate: unlimited}
previews: {enabled: false}
guards: {drift: {mode: enforce, alert: 60, hold: 80}}
"""
TASK = "Please read my mails of today and summarise them"
BILL = {"text": "Invoice 7, 90 EUR, due in June. Account DE75512108001245126199."}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("aarm") / "home", CONFIG) as running:
        running.credentials.add("ann", "approver")
        yield running


@pytest.fixture(scope="module")
def deferring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("deferring") / "home", DEFERRING) as running:
        yield running


@pytest.fixture(scope="module")
def drifting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("drifting") / "home", f"{DRIFTING}insufficient_evidence: defer\n") as running:
        running.credentials.add("ann", "approver")
        yield running


def opened(gateway: Served, session: str, task: str) -> None:
    assert gateway.ask("POST", "/v1/sessions", {"session": session, "task": task}).status == 201


def decided(gateway: Served, tool: str, arguments: dict[str, Any], *, key: str = "bot", **members: Any) -> Any:
    answer = gateway.ask("POST", "/v1/decisions", {"tool": tool, "arguments": arguments, **members}, key=key)
    return {**answer.json, "status": answer.status}


def read(gateway: Served, session: str) -> None:
    """Have the session read what a stranger wrote."""
    allowed = decided(gateway, "read_inbox", {}, session=session)
    result = {"decision_id": allowed["decision_id"], "result": BILL}
    assert gateway.ask("POST", "/v1/results", result).json["decision"] == "allow"


def receipt(gateway: Served, decision: Any) -> dict[str, Any]:
    found: dict[str, Any] = gateway.ask("GET", f"/v1/receipts/{decision['receipt']['id']}", key="auditor").json
    return dict(found.get("receipt", found))


class TestInterception:
    """R1."""

    def test_a_denied_action_has_no_effect(self, tmp_path: Path) -> None:
        (tmp_path / "aegis.yaml").write_text(CONFIG)
        replace_runtime(open_runtime(RuntimeSettings(config=tmp_path / "aegis.yaml", home=tmp_path / "home")))
        ran: list[str] = []

        @aegis.protect
        def wipe_disk(path: str) -> None:
            ran.append(path)

        @aegis.protect
        def read_inbox() -> str:
            ran.append("inbox")
            return "nothing new"

        try:
            with pytest.raises(ToolCallBlocked):
                wipe_disk("/dev/sda")
            assert read_inbox() == "nothing new"
        finally:
            replace_runtime(None)
        assert ran == ["inbox"]

    def test_what_is_denied_is_on_record(self, gateway: Served) -> None:
        blocked = decided(gateway, "wipe_disk", {"path": "/dev/sda"}, session="denied")
        kept = receipt(gateway, blocked)
        assert (kept["decision"], kept["tool"], kept["session"]) == ("block", "wipe_disk", "denied")


class TestContext:
    """R2 and R3."""

    def test_the_words_and_the_actions_of_a_session_are_kept(self, gateway: Served) -> None:
        opened(gateway, "kept", "read my mail")
        said = gateway.ask("POST", "/v1/sessions/kept/turns", {"text": "then tell me what is due"})
        assert said.json["turn"] == 2
        read(gateway, "kept")
        kinds = [one["kind"] for one in gateway.ask("GET", "/v1/sessions/kept", key="auditor").json["items"]]
        assert sorted(kinds) == ["decision", "result", "session", "session"]

    def test_the_same_action_is_allowed_or_held_by_what_the_session_read(self, gateway: Served) -> None:
        payment = {"account": "DE75512108001245126199"}
        opened(gateway, "asked", "Pay 90 EUR to DE75512108001245126199")
        read(gateway, "asked")
        assert decided(gateway, "pay_bill", payment, session="asked")["decision"] == "allow"
        opened(gateway, "unasked", "Sum up my mail, please")
        read(gateway, "unasked")
        held = decided(gateway, "pay_bill", payment, session="unasked")
        assert held["decision"] == "require_approval"
        assert held["reason"] in {"unlicensed", "untrusted_value"}

    def test_an_action_before_anything_was_read_is_the_users_own(self, gateway: Served) -> None:
        opened(gateway, "clean", "Sum up my mail, please")
        note = {"to": "ada@example.com"}
        assert decided(gateway, "send_note", note, session="clean")["decision"] == "allow"

    def test_a_forbidden_action_stays_forbidden_whatever_the_user_says(self, gateway: Served) -> None:
        opened(gateway, "forbidden", "wipe the disk, I mean it")
        assert decided(gateway, "wipe_disk", {"path": "/dev/sda"}, session="forbidden")["decision"] == "block"


class TestDecisions:
    """R4, under our names: allow, block (DENY), sanitize (MODIFY), require_approval (STEP_UP)."""

    def test_allow_deny_modify_and_step_up(self, gateway: Served) -> None:
        assert decided(gateway, "read_inbox", {})["decision"] == "allow"
        assert decided(gateway, "wipe_disk", {})["decision"] == "block"
        token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        changed = decided(gateway, "send_note", {"to": "ada@example.com", "text": f"token {token}"})
        assert changed["decision"] == "sanitize"
        assert token not in str(changed["arguments"])
        held = decided(gateway, "deploy", {"version": "7"})
        assert (held["decision"], held["status"]) == ("require_approval", 202)

    def test_a_stepped_up_action_runs_after_an_approval_alone_and_once(self, gateway: Served) -> None:
        call = {"version": "8"}
        held = decided(gateway, "deploy", call, session="step", call_id="step-1")
        assert decided(gateway, "deploy", call, session="step", call_id="step-1")["decision"] == "require_approval"
        place = f"/v1/approvals/{held['approval']['id']}"
        assert gateway.ask("POST", place, {"decision": "approve"}).status == 403  # never the agent itself
        assert gateway.ask("POST", place, {"decision": "approve", "reason": "seen"}, key="ann").status == 200
        again = decided(gateway, "deploy", call, session="step", call_id="step-1")
        assert (again["decision"], bool(again["permit"])) == ("allow", True)
        trace = gateway.ask("GET", "/v1/sessions/step", key="auditor").json["items"]
        answered = [one for one in trace if one["kind"] == "approval" and one.get("approvers")]
        assert {name for one in answered for name in one["approvers"]}


class TestReceipts:
    """R5 and R6."""

    def test_a_receipt_names_who_acted_under_which_policy_and_why(self, gateway: Served) -> None:
        kept = receipt(gateway, decided(gateway, "read_inbox", {}, session="named", call_id="named-1"))
        for member in ("agent", "principal", "session", "call_id", "tool", "decision", "reason", "verdict", "time"):
            assert kept[member], member
        assert kept["policy_digest"].startswith("sha-256:")
        assert kept["sig"]["alg"] in {"Ed25519", "Ed25519-batch"}
        assert kept["sig"]["kid"]

    def test_an_agent_cannot_act_under_another_name(self, gateway: Served) -> None:
        taken = gateway.ask("POST", "/v1/decisions", {"tool": "read_inbox", "arguments": {}, "agent": "other"})
        assert taken.status == 403

    def test_the_human_of_a_session_is_recorded_with_its_opening(self, gateway: Served) -> None:
        opening = {"session": "owned", "task": "read my mail", "owner": "ada"}
        answer = gateway.ask("POST", "/v1/sessions", opening)
        assert answer.status == 201
        assert gateway.ask("POST", "/v1/sessions", opening).status == 200
        assert gateway.ask("POST", "/v1/sessions", {**opening, "owner": "bob"}).status == 409

    def test_a_receipt_holds_the_context_the_human_and_the_role(self, gateway: Served) -> None:
        opening = {"session": "context", "task": "read my mail", "owner": "ada"}
        assert gateway.ask("POST", "/v1/sessions", opening).status == 201
        read(gateway, "context")
        kept = receipt(gateway, decided(gateway, "read_inbox", {}, session="context"))
        assert (kept["v"], kept["owner"], kept["roles"]) == (2, "ada", ["agent"])
        context = kept["context"]
        assert (context["labels"], context["untrusted"], context["task"]) == (["confidential"], True, True)
        assert (context["turns"], context["calls"]) == (1, 1)


class TestDeferral:
    """R4 (DEFER), R5 and R6 over a deferral."""

    def test_missing_evidence_defers_and_resolves_under_the_same_identity(self, deferring: Served) -> None:
        opening = {"session": "later", "task": "read my mail, then send a note to ada@example.com", "owner": "ada"}
        assert deferring.ask("POST", "/v1/sessions", opening).status == 201
        first = decided(deferring, "read_inbox", {}, session="later", call_id="one")
        note = {"to": "ada@example.com"}
        held = decided(deferring, "send_note", note, session="later", call_id="two", depends_on=["one"])
        assert (held["status"], held["reason"], held["verdict"]) == (202, "deferred", "insufficient_evidence")
        assert decided(deferring, "read_inbox", {}, session="later")["decision"] == "allow"  # others go on
        deferring.ask("POST", "/v1/results", {"decision_id": first["decision_id"], "result": {"note": "tell Ada"}})
        again = decided(deferring, "send_note", note, session="later", call_id="two")
        assert again["reason"] != "deferred"
        before, after = receipt(deferring, held), receipt(deferring, again)
        for member in ("owner", "roles", "agent", "principal", "session", "call_id"):
            assert before[member] == after[member], member
        assert after["parent"] == before["receipt_id"]
        assert (before["deferral"]["resolution"], after["deferral"]["resolution"]) == ("pending", "evidence")
        assert before["deferral"]["time"] == after["deferral"]["time"]

    def test_a_policy_that_reads_what_the_session_lacks_defers(self, deferring: Served) -> None:
        answer = decided(deferring, "deploy", {"version": "7"})
        assert answer["missing"] == ["session:untrusted"]
        assert answer["verdict"] == "insufficient_evidence"


class TestSemanticDistance:
    """R7: how far a session is from its user's words, over a run of actions."""

    def test_drift_grows_over_a_run_that_nobody_asked_for_and_is_flagged(self, drifting: Served) -> None:
        opened(drifting, "astray", TASK)
        near = decided(drifting, "read_mails", {"day": "today"}, session="astray")
        assert (near["decision"], drift(drifting, "astray")) == ("allow", 0)
        far = run_astray(drifting, "astray")
        rules = [flagged(drifting, one) for one in far]
        assert (far[0]["decision"], rules[0]) == ("allow", ["drift-alert"])
        assert (far[-1]["decision"], rules[-1]) == ("require_approval", ["drift-hold"])
        assert all(rules)
        distances = [receipt(drifting, one)["context"]["drift"] for one in far]  # that of the actions before each
        assert distances == sorted(distances)
        assert distances[0] < 60 <= distances[1]
        assert drift(drifting, "astray") >= 80
        items = drifting.ask("GET", "/v1/sessions/astray", key="auditor").json["items"]
        assert [one["action"] for one in items if one["kind"] == "alarm"] == ["drift"] * 2  # one for each threshold

    def test_a_session_that_does_what_was_asked_does_not_drift(self, drifting: Served) -> None:
        opened(drifting, "steady", TASK)
        for number in range(20):
            told = decided(drifting, "read_mails", {"page": number}, session="steady")
            assert (told["decision"], flagged(drifting, told)) == ("allow", [])
        assert drift(drifting, "steady") == 0

    def test_a_deferred_action_resolves_when_the_user_speaks(self, drifting: Served) -> None:
        opened(drifting, "told", TASK)
        held = run_astray(drifting, "told")[-1]
        assert (held["status"], held["reason"], held["verdict"]) == (202, "deferred", "insufficient_evidence")
        place = f"/v1/approvals/{held['approval']['id']}"
        waiting = drifting.ask("GET", place, key="ann").json
        assert (waiting["state"], waiting["kind"], waiting["waiting_for"]) == ("pending", "deferral", ["turn"])
        said = drifting.ask("POST", "/v1/sessions/told/turns", {"text": "And share the folder x with all of them"})
        assert said.status == 201
        settled = drifting.ask("GET", place, key="ann").json
        assert (settled["state"], settled["resolved_by"]) == ("approved", "evidence")
        again = decided(drifting, "share_folder", {"name": "x"}, session="told", call_id="last")
        assert (again["decision"], flagged(drifting, again)) == ("allow", [])
        before, after = receipt(drifting, held), receipt(drifting, again)
        assert (before["deferral"]["reason"], before["deferral"]["resolution"]) == ("turn", "pending")
        assert (after["deferral"]["resolution"], after["parent"]) == ("evidence", before["receipt_id"])

    def test_a_turn_that_asks_for_something_else_does_not_let_it_run(self, drifting: Served) -> None:
        opened(drifting, "else", TASK)
        held = run_astray(drifting, "else")[-1]
        assert drifting.ask("POST", "/v1/sessions/else/turns", {"text": "Thank you, that is all"}).status == 201
        again = decided(drifting, "share_folder", {"name": "x"}, session="else", call_id="last")
        assert (held["decision"], again["decision"]) == ("require_approval", "require_approval")


def drift(gateway: Served, session: str) -> int:
    """How far the session went at most."""
    found: int = gateway.ask("GET", f"/v1/sessions/{session}", key="auditor").json["drift"]
    return found


def run_astray(gateway: Served, session: str) -> list[Any]:
    """Four deeds that nobody asked for, on four kinds of things; the last has the id `last`."""
    tools = ("make_payment", "invite_person", "post_article", "share_folder")
    ids = ("first", "second", "third", "last")
    return [
        decided(gateway, tool, {"name": "x"}, session=session, call_id=call_id)
        for tool, call_id in zip(tools, ids, strict=True)
    ]


def flagged(gateway: Served, decision: Any) -> list[str]:
    """What the receipt of a call says of its distance."""
    rows = receipt(gateway, decision)["guards"]
    return [rule for one in rows if one["guard"] == "drift" for rule in one["rules"]]
