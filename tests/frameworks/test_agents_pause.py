"""The OpenAI Agents SDK pauses for a person and goes on in another process: executed exactly once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.served import served
from support.shell import aegis_python

CONFIG = """version: 1
profile: standard
limits: {rate: unlimited}
tools:
  pay: {risk: high, approvals: {always: true}}
"""
SCRIPT = Path(__file__).with_name("agents_process.py")


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_a_stored_run_state_executes_once_and_as_the_gate_says(tmp_path: Path, decision: str) -> None:
    python = aegis_python("agents", "aegis.adapters.pausing")
    with served(tmp_path / "home", CONFIG) as gateway:
        url, key = f"http://127.0.0.1:{gateway.port}", gateway.credentials.text("bot")

        def agent(step: str) -> dict[str, Any]:
            command = [str(python), str(SCRIPT), url, key, str(tmp_path), step]
            run = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert run.returncode == 0, run.stderr
            value: dict[str, Any] = json.loads(run.stdout)
            return value

        assert agent("start")["paused"] == 1
        assert agent("resume") == {"waiting": 1}
        # Somebody who owns the stored state says yes in it: the body still asks the gate.
        assert agent("force")["outputs"] == ["refused: approval_required"]
        (held,) = gateway.ask("GET", "/v1/approvals", key="ann").json["items"]
        gateway.ask("POST", f"/v1/approvals/{held['id']}", {"decision": decision}, key="ann")
        yes = decision == "approve"
        assert agent("resume")["outputs"] == ["paid" if yes else "a person denied this call"]
        assert agent("resume")["outputs"] == ["this approval was already used" if yes else "a person denied this call"]
    ran = tmp_path / "ran.jsonl"
    assert (ran.read_text() if ran.exists() else "") == ('{"amount": 7}\n' if yes else "")
