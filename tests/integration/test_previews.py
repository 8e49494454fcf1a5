"""A held call shows its approver what it would do; the look is on record and moves nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.core.ports import Search
from aegis.sandbox.view import read_folder
from support.deployments import deployment
from support.served import Served, served
from support.shell import aegis

TOOLS = """
tools:
  run_shell: {risk: high, irreversible: true, effects: [exec]}
  pay:
    risk: high
    irreversible: true
    effects: [external_send]
    preview: {kind: card, title: A payment, fields: {To: /to, Amount: /amount}}
  deploy: {risk: high, irreversible: true, effects: [exec], dryrun_supported: true}
"""


def config(workspace: Path) -> str:
    return f"version: 1\nlimits: {{rate: unlimited}}\npreviews: {{workspace: {workspace}}}\n{TOOLS}"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    (place / "build").mkdir(parents=True)
    (place / "build" / "x.o").write_text("object")
    return place


def shown(gateway: Served, approval: str) -> dict[str, Any]:
    until = time.monotonic() + 30
    while True:
        preview: dict[str, Any] = gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json["preview"]
        if preview["state"] != "pending":
            return preview
        assert time.monotonic() < until
        time.sleep(0.02)


def test_an_approver_sees_the_effect_and_the_log_holds_it(tmp_path: Path, workspace: Path) -> None:
    before = read_folder(str(workspace)).digest
    home = tmp_path / "home"
    with served(home, config(workspace)) as gateway:
        held = gateway.decide("run_shell", arguments={"command": "rm -r build && touch ok"}, call_id="c-1")
        assert held.status == 202
        approval = held.json["approval"]["id"]
        preview = shown(gateway, approval)
        files = [(row["change"], row["path"]) for row in preview["effect"]["workspaces"][0]["files"]]
        assert files == [("deleted", "build"), ("deleted", "build/x.o"), ("created", "ok")]
        assert preview["label"] == "one run, under other conditions"
        assert read_folder(str(workspace)).digest == before
        own = gateway.ask("GET", f"/v1/approvals/{approval}", key="bot").json
        assert "preview" not in own
        # The look is a receipt of this approval, and is no answer: the call is still held.
        with gateway.deployment.store.reader() as reader:
            rows = [entry.body for entry in reader.search(Search(kind="approval"))]
        assert len(rows) == 1
        assert b'"action":"previewed"' in rows[0]
        assert b"x.o" not in rows[0]
        again = gateway.decide("run_shell", arguments={"command": "rm -r build && touch ok"}, call_id="c-1")
        assert again.status == 202
        assert gateway.ask("POST", f"/v1/approvals/{approval}", {"decision": "approve"}, key="ann").status == 200
    out = tmp_path / "export"
    assert aegis("log", "export", "--out", out, "--home", home).returncode == 0
    verified = aegis("log", "verify", out, "--key", out / "keys.json")
    assert verified.returncode == 0, verified.stdout


def test_cards_and_dry_runs_come_from_the_registry(tmp_path: Path, workspace: Path) -> None:
    with served(tmp_path / "home", config(workspace)) as gateway:
        gateway.deployment.gate.dry_run("deploy", lambda arguments: {"pods": arguments["count"]})
        paid = gateway.decide("pay", arguments={"to": "DE02", "amount": 7}).json["approval"]["id"]
        assert shown(gateway, paid)["effect"] == {"title": "A payment", "fields": {"To": "DE02", "Amount": 7}}
        deployed = gateway.decide("deploy", arguments={"count": 2}).json["approval"]["id"]
        assert shown(gateway, deployed)["effect"] == {"pods": 2}


def test_where_there_is_no_preview_the_reason_is_shown(tmp_path: Path) -> None:
    with served(tmp_path / "home", f"version: 1\nlimits: {{rate: unlimited}}\n{TOOLS}") as gateway:
        approval = gateway.decide("run_shell", arguments={"command": "ls"}).json["approval"]["id"]
        assert shown(gateway, approval)["why"].startswith("no preview: no workspace is configured")


def test_a_gate_that_closes_lets_a_look_end_first(tmp_path: Path, workspace: Path) -> None:
    opened = deployment(tmp_path / "home", config(workspace))
    opened.gate.decide(ToolCall(tool="run_shell", arguments={"command": "sleep 0.3"}))
    opened.close()
    again = deployment(tmp_path / "home", config(workspace))
    with again.store.reader() as reader:
        assert len(reader.search(Search(kind="approval"))) == 1
    again.close()
