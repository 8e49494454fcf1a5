"""`aegis agents`: the kill switch as an operator has it, over the state of a home."""

from __future__ import annotations

from pathlib import Path

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome, Reason
from support.deployments import deployment
from support.shell import aegis, read_json


def test_a_stopped_agent_is_refused_by_a_gate_that_already_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    running = deployment(home)
    call = ToolCall(tool="read_file", arguments={"path": "notes.txt"})
    try:
        assert running.gate.decide(call).outcome is Outcome.ALLOW
        assert aegis("agents", "revoke", "bot", "--reason", "lost laptop", "--home", home).returncode == 0
        stopped = running.gate.decide(call)
        assert (stopped.outcome, stopped.reason) == (Outcome.BLOCK, Reason.REVOKED)
        (row,) = read_json(aegis("agents", "list", "--home", home, "--json"))["items"]
        assert (row["agent"], row["state"], row["reason"]) == ("bot", "revoked", "lost laptop")
        assert row["by"].startswith("operator")
        assert aegis("agents", "restore", "bot", "--home", home).returncode == 0
        assert running.gate.decide(call).outcome is Outcome.ALLOW
    finally:
        running.close()


def test_an_agent_that_never_called_can_be_stopped_beforehand(tmp_path: Path) -> None:
    home = tmp_path / "home"
    deployment(home).close()
    refused = aegis("agents", "revoke", "newcomer", "--home", home)
    assert (refused.returncode, "--unknown-ok" in refused.stderr) == (2, True)
    changed = read_json(aegis("agents", "revoke", "newcomer", "--unknown-ok", "--home", home, "--json"))
    assert changed["state"] == "revoked"
    assert changed["receipt"]["index"] > 0
    running = deployment(home, agent="newcomer")
    try:
        assert running.gate.decide(ToolCall(tool="read_file", arguments={})).reason is Reason.REVOKED
    finally:
        running.close()


def test_a_name_with_a_typo_stops_nobody(tmp_path: Path) -> None:
    home = tmp_path / "home"
    running = deployment(home)
    try:
        running.gate.decide(ToolCall(tool="read_file", arguments={}))
    finally:
        running.close()
    for verb in ("revoke", "restore"):
        refused = aegis("agents", verb, "bott", "--home", home)
        assert refused.returncode == 2
        assert "did you mean `bot`?" in refused.stderr
    assert [row["state"] for row in read_json(aegis("agents", "list", "--home", home, "--json"))["items"]] == ["active"]


def test_no_home_is_made_by_looking_for_one(tmp_path: Path) -> None:
    finished = aegis("agents", "list", "--home", tmp_path / "none")
    assert finished.returncode == 2
    assert "no home" in finished.stderr
    assert not (tmp_path / "none").exists()


def test_a_name_that_no_agent_can_have_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    deployment(home).close()
    assert aegis("agents", "revoke", "bot", "--reason", "x" * 2_000, "--home", home).returncode == 2


def test_stopping_an_agent_puts_no_policy_on_the_record(tmp_path: Path) -> None:
    home = tmp_path / "home"
    deployment(home).close()
    before = read_json(aegis("agents", "revoke", "bot", "--unknown-ok", "--home", home, "--json"))["receipt"]["index"]
    after = read_json(aegis("agents", "restore", "bot", "--home", home, "--json"))["receipt"]["index"]
    assert after == before + 1


def test_an_empty_name_stops_nobody_and_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    deployment(home).close()
    for verb in ("revoke", "restore"):
        refused = aegis("agents", verb, "", "--home", home)
        assert refused.returncode == 2
        assert "agent" in refused.stderr
