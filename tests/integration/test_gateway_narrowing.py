"""An approver narrows a call, or answers for a session; and what was bound is looked at again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.served import Answer, Served, served

MAIL = {"to": "a@example.com", "cc": "b@example.com", "body": "hello"}
CONFIG = """version: 1
profile: standard
limits: {rate: unlimited}
tools:
  send_email:
    risk: high
    irreversible: true
    effects: [external_send]
    schema: {type: object, required: [to, body]}
  pay: {risk: high, approvals: {always: true, quorum: 2}}
  wipe: {risk: high, approvals: {always: true, session_grant: off}}
  run_shell: {risk: high, effects: [exec], approvals: {always: true}}
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home", CONFIG) as running:
        running.credentials.add("ben", "approver")
        yield running


def hold(gateway: Served, tool: str, call_id: str, arguments: Any = MAIL, **members: Any) -> Any:
    answer = gateway.decide(tool, call_id=call_id, arguments=arguments, **members)
    assert answer.status == 202, answer.json
    return answer.json


def resolve(gateway: Served, approval: str, key: str = "ann", **more: Any) -> Answer:
    return gateway.ask("POST", f"/v1/approvals/{approval}", {"decision": "approve", **more}, key=key)


def test_a_narrowed_call_is_what_runs(gateway: Served) -> None:
    held = hold(gateway, "send_email", "n-1")
    narrower = {"to": "a@example.com", "body": "hello"}
    answer = resolve(gateway, held["approval"]["id"], arguments=narrower)
    assert answer.status == 200, answer.json
    shown = answer.json
    assert (shown["state"], shown["arguments"], shown["submitted"]) == ("approved", narrower, MAIL)
    assert shown["narrowed"] is True
    assert shown["call_digest"] != held["call_digest"]
    resumed = gateway.decide("send_email", call_id="n-1", arguments=MAIL)
    assert (resumed.status, resumed.json["decision"]) == (200, "sanitize")
    assert resumed.json["arguments"] == narrower
    assert resumed.json["call_digest"] == shown["call_digest"]
    assert resumed.json["request_digest"] == held["request_digest"]
    receipts = gateway.ask("GET", "/v1/receipts?kind=approval", key="auditor").json["items"]
    assert [one["action"] for one in receipts] == ["approved", "narrowed"]


def test_arguments_that_do_more_are_refused(gateway: Served) -> None:
    held = hold(gateway, "send_email", "n-2")
    approval = held["approval"]["id"]
    for arguments, code in (
        ({"to": "a@example.com"}, "narrowing_blocked"),  # the tool's schema asks for a body
        ({"to": "a@example.com", "body": "x", "command": "rm -rf /"}, None),
        ({"to": "a@example.com", "body": "hello", "attachment": "/etc/shadow"}, None),
    ):
        answer = resolve(gateway, approval, arguments=arguments)
        assert answer.status == 422, arguments
        assert code is None or answer.code == code
    shown = gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json
    assert (shown["state"], shown["narrowed"], shown["votes"]) == ("pending", False, [])


def test_narrowing_resets_the_votes_for_the_other_call(gateway: Served) -> None:
    arguments = {"amount": 500, "to": "x"}
    held = hold(gateway, "pay", "n-3", arguments)
    approval = held["approval"]["id"]
    resolve(gateway, approval)
    narrowed = resolve(gateway, approval, "ben", arguments={"amount": 5, "to": "x"})
    assert (narrowed.json["state"], [one["by"] for one in narrowed.json["votes"]]) == ("pending", ["ben"])
    stale = resolve(gateway, approval, call_digest=held["call_digest"])
    assert (stale.status, stale.code) == (409, "conflict")
    assert resolve(gateway, approval, call_digest=narrowed.json["call_digest"]).json["state"] == "approved"
    resumed = gateway.decide("pay", call_id="n-3", arguments=arguments).json
    assert (resumed["decision"], resumed["arguments"]) == ("sanitize", {"amount": 5, "to": "x"})


def test_narrowing_to_the_same_call_changes_nothing(gateway: Served) -> None:
    held = hold(gateway, "send_email", "n-4")
    answer = resolve(gateway, held["approval"]["id"], arguments=MAIL)
    assert (answer.json["state"], answer.json["narrowed"]) == ("approved", False)
    assert gateway.decide("send_email", call_id="n-4", arguments=MAIL).json["decision"] == "allow"


def test_a_yes_for_the_session_covers_exactly_the_same_call_until_it_is_revoked(gateway: Served) -> None:
    held = hold(gateway, "send_email", "g-1", session="s-1")
    answer = resolve(gateway, held["approval"]["id"], scope="session")
    assert (answer.json["state"], answer.json["votes"][0]["scope"]) == ("approved", "session")
    grant = answer.json["grant"]
    assert gateway.decide("send_email", call_id="g-1", arguments=MAIL, session="s-1").json["decision"] == "allow"
    second = gateway.decide("send_email", call_id="g-2", arguments=MAIL, session="s-1")
    assert (second.status, second.json["decision"]) == (200, "allow")
    assert second.json["permit"]
    # Another argument, another session and another tool ask a person.
    assert (
        gateway.decide("send_email", call_id="g-3", arguments={**MAIL, "to": "c@example.com"}, session="s-1").status
        == 202
    )
    assert gateway.decide("send_email", call_id="g-4", arguments=MAIL, session="s-2").status == 202
    assert gateway.decide("send_email", call_id="g-5", arguments=MAIL).status == 202
    listed = gateway.ask("GET", "/v1/grants", key="ann").json["items"]
    assert [(one["id"], one["state"], one["approvers"]) for one in listed] == [(grant, "active", ["ann"])]
    assert gateway.ask("GET", "/v1/grants", key="bot").status == 403
    revoked = gateway.ask("POST", f"/v1/grants/{grant}/revoke", key="ben")
    assert (revoked.status, revoked.json["state"]) == (200, "revoked")
    assert gateway.ask("POST", f"/v1/grants/{grant}/revoke", key="ben").status == 409
    assert gateway.decide("send_email", call_id="g-6", arguments=MAIL, session="s-1").status == 202
    kinds = gateway.ask("GET", "/v1/receipts?kind=grant", key="auditor").json["items"]
    assert [one["action"] for one in kinds if "grant_id" in one] == ["revoke", "open"]


def test_a_grant_ends_with_the_standing_of_who_gave_it(gateway: Served) -> None:
    held = hold(gateway, "send_email", "g-10", session="s-3")
    resolve(gateway, held["approval"]["id"], "ben", scope="session")
    gateway.credentials.revoke("ben")
    assert gateway.decide("send_email", call_id="g-11", arguments=MAIL, session="s-3").status == 202


def test_a_policy_can_rule_out_a_yes_for_the_session(gateway: Served) -> None:
    held = hold(gateway, "wipe", "g-20", session="s-4")
    answer = resolve(gateway, held["approval"]["id"], scope="session")
    assert (answer.status, answer.code) == (422, "scope_not_allowed")
    assert resolve(gateway, held["approval"]["id"]).status == 200


def test_a_script_that_was_exchanged_after_the_yes_does_not_run(gateway: Served, tmp_path: Path) -> None:
    script = tmp_path / "deploy.sh"
    script.write_text("#!/bin/sh\necho fine\n")
    arguments = {"command": f"sh {script}"}
    held = hold(gateway, "run_shell", "f-1", arguments)
    approval = held["approval"]["id"]
    assert gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json["facts"]["files_bound"] is True
    assert resolve(gateway, approval).status == 200
    script.write_text("#!/bin/sh\necho evil\n")
    after = gateway.decide("run_shell", call_id="f-1", arguments=arguments)
    assert after.status == 202
    assert after.json["approval"]["id"] != approval
    assert resolve(gateway, after.json["approval"]["id"]).status == 200
    assert gateway.decide("run_shell", call_id="f-1", arguments=arguments).json["decision"] == "allow"


def test_a_link_that_leads_elsewhere_after_the_yes_is_noticed(gateway: Served, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "one")
    arguments = {"path": str(link)}
    held = hold(gateway, "pay", "f-2", arguments)
    for key in ("ann", "ben"):
        resolve(gateway, held["approval"]["id"], key)
    link.unlink()
    link.symlink_to(tmp_path / "two")
    after = gateway.decide("pay", call_id="f-2", arguments=arguments)
    assert (after.status, after.json["approval"]["id"] == held["approval"]["id"]) == (202, False)
