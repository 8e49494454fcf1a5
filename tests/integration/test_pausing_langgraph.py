"""A LangGraph run that pauses for a person and goes on in another process: executed exactly once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.served import Served, served
from support.shell import aegis_python

# One process of the agent: starts the run, or resumes what an earlier process left in the checkpoint.
AGENT = """
import json, sqlite3, sys
from pathlib import Path
from typing import Any, TypedDict
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
import aegis
from aegis.adapters.pausing import pause_or_run

url, key, folder, step, amount = sys.argv[1:6]
gate = aegis.Client(url, api_key=key)
ran = Path(folder, "ran.jsonl")

class State(TypedDict, total=False):
    arguments: dict[str, Any]
    call_id: str
    outcome: str

def pay(amount: int) -> str:
    with ran.open("a") as file:
        file.write(json.dumps({"amount": amount}) + "\\n")
    return "paid"

def node(state: State) -> State:
    call = aegis.ToolCall(tool="pay", arguments=state["arguments"], call_id=state["call_id"], session="t-1")
    try:
        return {"outcome": pause_or_run(gate, call, pay)}
    except aegis.ToolCallBlocked as blocked:
        return {"outcome": blocked.decision.reason.value}

graph = StateGraph(State)
graph.add_node("pay", node)
graph.add_edge(START, "pay")
graph.add_edge("pay", END)
connection = sqlite3.connect(Path(folder, "graph.db"), check_same_thread=False)
app = graph.compile(checkpointer=SqliteSaver(connection))
thread = {"configurable": {"thread_id": "t-1"}}
if step == "start":
    value = app.invoke({"arguments": {"amount": int(amount)}, "call_id": "call-1"}, thread)
elif step == "swap":
    app.update_state(thread, {"arguments": {"amount": int(amount)}})
    value = app.invoke(Command(resume=True), thread)
else:
    value = app.invoke(Command(resume=json.loads(step)), thread)
paused = [one.value for one in value.get("__interrupt__", ())]
print(json.dumps({"outcome": value.get("outcome"), "paused": paused}))
"""
LOADED = ("langgraph.checkpoint.sqlite", "langgraph.graph", "langgraph.types", "aegis.adapters.pausing")
CONFIG = """version: 1
profile: standard
limits: {rate: unlimited}
tools:
  pay: {risk: high, approvals: {always: true}}
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home", CONFIG) as running:
        yield running


def agent(gateway: Served, folder: Path, step: str, amount: int = 7) -> dict[str, Any]:
    """One process of the agent, from its start to its end."""
    key = gateway.credentials.text("bot")
    run = subprocess.run(
        [aegis_python(*LOADED), "-c", AGENT, f"http://127.0.0.1:{gateway.port}", key, str(folder), step, str(amount)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    value: dict[str, Any] = json.loads(run.stdout)
    return value


def ran(folder: Path) -> list[dict[str, Any]]:
    file = folder / "ran.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def resolve(gateway: Served, paused: dict[str, Any], decision: str) -> None:
    body = {"decision": decision}
    assert gateway.ask("POST", f"/v1/approvals/{paused['approval_id']}", body, key="ann").status == 200


@pytest.mark.claim("APR-18")
def test_a_paused_run_goes_on_in_another_process_and_executes_once(gateway: Served, tmp_path: Path) -> None:
    first = agent(gateway, tmp_path, "start")
    (paused,) = first["paused"]
    assert (paused["tool"], first["outcome"]) == ("pay", None)
    assert "amount" not in json.dumps(paused)
    # Nobody answered: whatever the resumption says is no yes.
    for word in ("true", '"approve"', '{"decision": "approve"}'):
        again = agent(gateway, tmp_path, word)
        assert [one["approval_id"] for one in again["paused"]] == [paused["approval_id"]]
    assert ran(tmp_path) == []
    resolve(gateway, paused, "approve")
    assert agent(gateway, tmp_path, "false")["outcome"] == "paid"
    assert ran(tmp_path) == [{"amount": 7}]
    agent(gateway, tmp_path, "true")
    assert ran(tmp_path) == [{"amount": 7}]


def test_a_denied_run_ends_without_executing(gateway: Served, tmp_path: Path) -> None:
    (paused,) = agent(gateway, tmp_path, "start")["paused"]
    resolve(gateway, paused, "deny")
    assert agent(gateway, tmp_path, "true")["outcome"] == "approval_denied"
    assert ran(tmp_path) == []


def test_arguments_that_were_swapped_in_the_checkpoint_do_not_run(gateway: Served, tmp_path: Path) -> None:
    (paused,) = agent(gateway, tmp_path, "start")["paused"]
    resolve(gateway, paused, "approve")
    assert agent(gateway, tmp_path, "swap", 7_000)["outcome"] == "conflict"
    assert ran(tmp_path) == []
