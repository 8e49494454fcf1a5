"""An approver narrows a call, or answers for a session; and what was bound is looked at again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.bootstrap import open_deployment
from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome
from support.approvals import approved
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
  run_twice: {risk: high, effects: [exec], approvals: {always: true, quorum: 2}}
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


@pytest.mark.parametrize(
    ("tool", "held", "changed", "pointer"),
    [
        ("send_email", MAIL, {**MAIL, "to": "eve@example.com"}, "/to"),
        ("send_email", MAIL, {**MAIL, "cc": "b@example.com, eve@example.com"}, "/cc"),
        ("send_email", MAIL, {**MAIL, "body": "hello, send it to eve"}, "/body"),
        ("pay", {"amount": 5, "to": "x"}, {"amount": 500, "to": "x"}, "/amount"),
        ("pay", {"amount": 5, "to": "x"}, {"amount": 5, "to": "y"}, "/to"),
        ("wipe", {"path": "/srv/data/tmp"}, {"path": "/srv/data"}, "/path"),
        ("wipe", {"url": "https://a.example/x"}, {"url": "https://b.example/x"}, "/url"),
        ("run_shell", {"command": "rm -rf build"}, {"command": "rm -rf dist"}, "/command"),
    ],
)
def test_another_resource_or_more_of_it_is_no_narrowing(
    gateway: Served, tool: str, held: dict[str, Any], changed: dict[str, Any], pointer: str
) -> None:
    call = hold(gateway, tool, "n-9", held)
    approval = call["approval"]["id"]
    answer = resolve(gateway, approval, arguments=changed)
    assert (answer.status, answer.code) == (422, "not_narrower")
    assert f"`{pointer}`" in answer.json["error"]["message"]
    shown = gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json
    assert (shown["state"], shown["narrowed"], shown["arguments"]) == ("pending", False, held)


def test_what_was_narrowed_cannot_be_widened_again(gateway: Served) -> None:
    held = hold(gateway, "pay", "n-10", {"amount": 500, "to": "x"})
    approval = held["approval"]["id"]
    assert resolve(gateway, approval, arguments={"amount": 5, "to": "x"}).status == 200
    for amount in (500, 6):
        answer = resolve(gateway, approval, "ben", arguments={"amount": amount, "to": "x"})
        assert (answer.status, answer.code) == (422, "not_narrower")
    assert resolve(gateway, approval, "ben", arguments={"amount": 4, "to": "x"}).json["arguments"]["amount"] == 4


def test_the_registry_says_what_can_be_narrowed(tmp_path: Path) -> None:
    config = CONFIG + "  buy: {risk: high, approvals: {always: true, narrow: {widgets: lower, /amount: fixed}}}\n"
    with served(tmp_path / "home", config) as running:
        held = hold(running, "buy", "n-11", {"widgets": 9, "amount": 9})
        approval = held["approval"]["id"]
        refused = resolve(running, approval, arguments={"widgets": 9, "amount": 8})
        assert (refused.status, refused.code) == (422, "not_narrower")
        assert resolve(running, approval, arguments={"widgets": 8, "amount": 9}).json["state"] == "approved"
        # Another server's tool of that name has not been declared: what loosens does not hold for it.
        other = hold(running, "buy", "n-12", {"widgets": 9, "amount": 9}, server="mcp:shop")
        for arguments in ({"widgets": 8, "amount": 9}, {"widgets": 9, "amount": 8}):
            assert resolve(running, other["approval"]["id"], arguments=arguments).code == "not_narrower"


def test_a_link_below_a_folder_leads_out_of_it(gateway: Served, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "tmp").mkdir(parents=True)
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    held = hold(gateway, "wipe", "n-13", {"path": str(inside)})
    approval = held["approval"]["id"]
    refused = resolve(gateway, approval, arguments={"path": f"{inside}/link/x"})
    assert (refused.status, refused.code) == (422, "not_narrower")
    assert resolve(gateway, approval, arguments={"path": f"{inside}/tmp"}).json["state"] == "approved"


def test_a_narrowed_call_shows_what_it_would_do_itself(gateway: Served, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "work" / name).mkdir(parents=True)
    config = CONFIG + f"previews: {{workspace: {tmp_path}/work}}\n"
    with served(tmp_path / "home2", config) as running:
        running.credentials.add("ben", "approver")
        held = hold(running, "run_twice", "n-14", {"command": "rm -r one two"})
        approval = held["approval"]["id"]
        first = seen(running, approval)
        narrowed = resolve(running, approval, arguments={"command": "rm -r two"})
        assert narrowed.json["state"] == "pending"
        second = seen(running, approval)
        if first["state"] == "none":  # no sandbox on this machine: it says so of both
            assert second["why"].startswith("no preview")
            return
        assert changed(first) == ["one", "two"]
        assert changed(second) == ["two"]
        receipts = running.ask("GET", "/v1/receipts?kind=approval", key="auditor").json["items"]
        previewed = [one for one in receipts if one["action"] == "previewed"]
        narrowing = next(one for one in receipts if one["action"] == "narrowed")
        assert [one["parent"] for one in previewed] == [narrowing["receipt_id"], held["decision_id"]]


def seen(gateway: Served, approval: str) -> dict[str, Any]:
    """The preview once there is one."""
    until = time.monotonic() + 120
    while True:
        preview: dict[str, Any] = gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json["preview"]
        if preview["state"] != "pending" or time.monotonic() > until:
            return preview
        time.sleep(0.05)


def changed(preview: dict[str, Any]) -> list[str]:
    return [row["path"] for row in preview["effect"]["workspaces"][0]["files"]]


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


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    (place / "deploy.sh").write_text("echo fine\n")
    return place


def shown_facts(gateway: Served, approval: str) -> dict[str, Any]:
    facts: dict[str, Any] = gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json["facts"]
    return facts


@pytest.mark.parametrize("command", ["sh deploy.sh", "./deploy.sh", "sh < deploy.sh", "env sh ./deploy.sh --now"])
def test_a_relative_script_is_bound_below_the_working_directory(gateway: Served, workplace: Path, command: str) -> None:
    arguments = {"command": command, "cwd": str(workplace)}
    held = hold(gateway, "run_shell", "r-1", arguments)
    approval = held["approval"]["id"]
    facts = shown_facts(gateway, approval)
    assert (facts["files_bound"], facts["working_directory"]) == (True, str(workplace))
    assert resolve(gateway, approval).status == 200
    (workplace / "deploy.sh").write_text("echo evil\n")
    after = gateway.decide("run_shell", call_id="r-1", arguments=arguments)
    assert (after.status, after.json["approval"]["id"] == approval) == (202, False)


def test_a_script_in_a_folder_that_a_command_enters_is_bound(gateway: Served, workplace: Path) -> None:
    arguments = {"command": "cd work && sh deploy.sh", "workdir": str(workplace.parent)}
    held = hold(gateway, "run_shell", "r-2", arguments)
    assert resolve(gateway, held["approval"]["id"]).status == 200
    (workplace / "deploy.sh").write_text("echo evil\n")
    assert gateway.decide("run_shell", call_id="r-2", arguments=arguments).status == 202


def test_a_working_directory_that_was_exchanged_is_noticed(gateway: Served, workplace: Path) -> None:
    link = workplace.parent / "current"
    link.symlink_to(workplace)
    arguments = {"command": "make", "cwd": str(link)}
    held = hold(gateway, "run_shell", "r-3", arguments)
    assert resolve(gateway, held["approval"]["id"]).status == 200
    other = workplace.parent / "other"
    other.mkdir()
    link.unlink()
    link.symlink_to(other)
    assert gateway.decide("run_shell", call_id="r-3", arguments=arguments).status == 202


def test_a_relative_path_starts_where_the_session_works(gateway: Served, workplace: Path) -> None:
    opened = gateway.ask("POST", "/v1/sessions", {"session": "s-w", "mounts": [str(workplace)]}, key="bot")
    assert opened.status in (200, 201), opened.json
    target = workplace / "target"
    target.symlink_to(workplace / "deploy.sh")
    held = hold(gateway, "wipe", "r-4", {"path": "target"}, session="s-w")
    assert shown_facts(gateway, held["approval"]["id"])["files_bound"] is True
    assert resolve(gateway, held["approval"]["id"]).status == 200
    target.unlink()
    target.symlink_to("/etc/hostname")
    after = gateway.decide("wipe", call_id="r-4", arguments={"path": "target"}, session="s-w")
    assert after.status == 202


def test_two_dots_behind_a_link_are_followed_as_the_system_does(gateway: Served, workplace: Path) -> None:
    far = workplace.parent / "far" / "deep"
    far.mkdir(parents=True)
    (far.parent / "x.sh").write_text("echo far\n")
    (workplace / "link").symlink_to(far)
    arguments = {"command": f"sh {workplace}/link/../x.sh"}
    held = hold(gateway, "run_shell", "r-5", arguments)
    assert resolve(gateway, held["approval"]["id"]).status == 200
    (far.parent / "x.sh").write_text("echo evil\n")
    assert gateway.decide("run_shell", call_id="r-5", arguments=arguments).status == 202


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "sh deploy.sh"},  # nobody knows where
        {"command": "sh deploy.sh", "cwd": "below"},
        {"command": "sh /srv/$NAME /srv/x", "cwd": "/srv"},  # worked out later
        {"command": "cd a && cd b && sh x", "cwd": "/srv"},  # one folder is followed
        {"command": "cat " + " ".join(f"/srv/{number}" for number in range(99)), "cwd": "/srv"},  # too many
    ],
)
def test_what_is_not_bound_is_said(gateway: Served, arguments: dict[str, Any]) -> None:
    held = hold(gateway, "run_shell", "r-6", arguments)
    assert shown_facts(gateway, held["approval"]["id"])["files_bound"] is False


def test_in_process_a_relative_path_starts_in_the_working_directory(
    tmp_path: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aegis.yaml").write_text(CONFIG)
    running = open_deployment(tmp_path / "aegis.yaml", tmp_path / "home3")
    try:
        gate, call = running.gate, ToolCall(tool="run_shell", arguments={"command": "sh deploy.sh"}, call_id="r-7")
        monkeypatch.chdir(workplace)
        first = approved(gate, gate.decide(call))
        other = workplace.parent / "elsewhere"
        other.mkdir()
        (other / "deploy.sh").write_text("echo evil\n")
        monkeypatch.chdir(other)
        again = gate.decide(call)
        assert again.outcome is Outcome.REQUIRE_APPROVAL
        assert again.approval is not None and again.approval.id != first.id
        approved(gate, again)
        assert gate.decide(call).outcome is Outcome.ALLOW
    finally:
        running.close()
