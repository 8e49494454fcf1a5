"""`aegis approvals`: what is shown is what is held, and only an approver's key answers it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome, Reason
from support.deployments import deployment
from support.shell import aegis, gateway, read_json

HOSTILE = {"to": "a@b.example", "subject": "\u202egnp.exe", "body": "first line\n\x1b[2Ksecond \u0430dmin"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    deployment(place).close()
    return place


@pytest.fixture
def approver(home: Path) -> dict[str, str]:
    key = aegis("keys", "create", "--role", "approver", "--name", "ada", "--home", home).stdout.strip()
    return {"AEGIS_API_KEY": key}


def hold(home: Path, arguments: dict[str, Any] | None = None, call_id: str = "c-1") -> str:
    running = deployment(home)
    try:
        call = ToolCall(tool="send_email", arguments=arguments or {"to": "a@b.example"}, call_id=call_id)
        decision = running.gate.decide(call)
        assert decision.approval is not None
        return decision.approval.id
    finally:
        running.close()


def test_a_held_call_is_listed_shown_in_full_and_approved_once(home: Path, approver: dict[str, str]) -> None:
    approval = hold(home, {"to": "a@b.example", "body": "x" * 5_000})
    (row,) = read_json(aegis("approvals", "list", "--home", home, "--json", env=approver))["items"]
    assert (row["id"], row["state"], row["tool"]) == (approval, "pending", "send_email")
    shown = aegis("approvals", "show", approval, "--home", home, env=approver).stdout
    assert "x" * 5_000 in shown
    answered = read_json(aegis("approvals", "approve", approval, "--home", home, "--json", env=approver))
    assert (answered["state"], answered["resolved_by"]) == ("approved", "ada")
    assert aegis("approvals", "deny", approval, "--home", home, env=approver).returncode == 2
    running = deployment(home)
    try:
        call = ToolCall(tool="send_email", arguments={"to": "a@b.example", "body": "x" * 5_000}, call_id="c-1")
        assert running.gate.decide(call).outcome is Outcome.ALLOW
        assert running.gate.decide(call).outcome is Outcome.BLOCK
    finally:
        running.close()


def test_a_denied_call_is_refused(home: Path, approver: dict[str, str]) -> None:
    approval = hold(home)
    assert aegis("approvals", "deny", approval, "--reason", "no", "--home", home, env=approver).returncode == 0
    running = deployment(home)
    try:
        call = ToolCall(tool="send_email", arguments={"to": "a@b.example"}, call_id="c-1")
        assert running.gate.decide(call).reason is Reason.APPROVAL_DENIED
    finally:
        running.close()


def test_owning_the_home_is_not_enough(home: Path) -> None:
    approval = hold(home)
    finished = aegis("approvals", "approve", approval, "--home", home)
    assert finished.returncode == 2
    assert "approver's API key" in finished.stderr
    agent = aegis("keys", "create", "--role", "agent", "--agent", "bot", "--home", home).stdout.strip()
    refused = aegis("approvals", "approve", approval, "--home", home, env={"AEGIS_API_KEY": agent})
    assert refused.returncode == 2


def test_nobody_approves_their_own_call(home: Path) -> None:
    key = aegis("keys", "create", "--role", "approver", "--role", "agent", "--agent", "bot", "--home", home)
    approval = hold(home)
    env = {"AEGIS_API_KEY": key.stdout.strip()}
    finished = aegis("approvals", "approve", approval, "--home", home, env=env)
    assert finished.returncode == 2
    assert "their own" in finished.stderr


def test_what_would_deceive_a_reader_is_spelled_out(home: Path, approver: dict[str, str]) -> None:
    approval = hold(home, HOSTILE)
    shown = aegis("approvals", "show", approval, "--home", home, env=approver).stdout
    assert all(char.isprintable() or char == "\n" for char in shown.replace("\t", ""))
    assert "\\u202egnp.exe" in shown
    assert "\\u001b[2Ksecond" in shown
    assert "\\u0430dmin" in shown


def test_another_call_than_the_one_meant_is_not_approved(home: Path, approver: dict[str, str]) -> None:
    approval = hold(home)
    wrong = "sha-256:" + "0" * 64
    finished = aegis("approvals", "approve", approval, "--call-digest", wrong, "--home", home, env=approver)
    assert finished.returncode == 2
    (row,) = read_json(aegis("approvals", "list", "--home", home, "--json", env=approver))["items"]
    assert row["state"] == "pending"


def test_the_queue_of_a_running_gateway_is_answered_over_http(home: Path, approver: dict[str, str]) -> None:
    agent = aegis("keys", "create", "--role", "agent", "--agent", "bot", "--home", home).stdout.strip()
    call = json.dumps({"tool": "send_email", "arguments": {"to": "a@b.example"}, "call_id": "c-9"})
    with gateway(home) as running:
        here = {"AEGIS_URL": running.url}
        held = aegis("decide", "-", stdin=call, env={"AEGIS_API_KEY": agent, **here})
        assert held.returncode == 3
        approval = read_json(held)["approval"]["id"]
        assert aegis("approvals", "approve", approval, env={**approver, **here}).returncode == 0
        resumed = aegis("decide", "-", stdin=call, env={"AEGIS_API_KEY": agent, **here})
        assert resumed.returncode == 0
        assert read_json(resumed)["permit"]


def test_an_approval_that_does_not_exist_is_misuse(home: Path, approver: dict[str, str]) -> None:
    finished = aegis("approvals", "show", "../none", "--home", home, env=approver)
    assert finished.returncode == 2
    assert "no such approval" in finished.stderr
