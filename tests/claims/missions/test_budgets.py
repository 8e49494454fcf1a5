"""Budgets are taken where the decision is recorded, and never exceeded."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.bootstrap import open_deployment
from aegis.core.call import ToolCall
from aegis.core.canonical import canonical, sha256
from aegis.core.outcome import Outcome, Reason
from aegis.missions import ledgers
from aegis.missions.results import Usage, sign_result
from support.approvals import approved
from support.missions import Desk, b64, desk, signer

TOOL_KEY = signer(5)
QUOTES = f"""
missions:
  quotes: [{{tool: ask_model, money: {{EUR: 30}}, tokens: 1000}}]
  tool_keys: {{ask_model: {b64(TOOL_KEY.public)}}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = desk(tmp_path_factory.mktemp("budgets"), QUOTES)
    yield made
    made.home.close()


def used(place: Desk, name: str) -> dict[str, int]:
    with place.home.store.reader() as reader:
        return {key: value for key, value in ledgers.read(reader, name).used().items() if value}


@pytest.mark.parametrize(
    ("budgets", "tool", "arguments", "passes"),
    [
        ({"calls": 2}, "list_rows", {}, 2),
        ({"effects": {"read": 2}}, "list_rows", {}, 2),
        ({"effects": {"write": 1}}, "write_file", {"path": "/ws/a"}, 1),
        ({"effects": {"network": 1}}, "fetch_url", {"url": "https://api.example.com"}, 1),
        ({"effects": {"exec": 1}}, "run_shell", {"command": "git status"}, 1),
        ({"effects": {"external_send": 0}}, "send_mail", {"to": "#team"}, 0),
        ({"bytes_out": 100}, "send_mail", {"to": "#team", "body": "x" * 20}, 2),
        ({"tokens": 2_500}, "ask_model", {}, 2),
        ({"money": {"EUR": 61}}, "ask_model", {}, 2),
        ({"risk": {"objects": 3}}, "send_mail", {"to": "a@example.com, b@example.com"}, 1),
    ],
)
def test_each_ceiling_refuses_the_call_that_would_pass_it(
    place: Desk, budgets: dict[str, Any], tool: str, arguments: dict[str, Any], passes: int
) -> None:
    session = f"s-{budgets}"
    place.open(place.issue(budgets=budgets), session)
    assert [place.call(tool, session, **arguments).allowed for _ in range(passes)] == [True] * passes
    refused = place.call(tool, session, **arguments)
    assert refused.reason is Reason.BUDGET_EXHAUSTED


def test_a_budget_of_one_class_leaves_the_others_alone(place: Desk) -> None:
    place.open(place.issue(budgets={"effects": {"write": 0}}), "s-class")
    assert place.call("list_rows", "s-class").allowed
    assert not place.call("write_file", "s-class", path="/ws/a").allowed


def test_destructive_calls_are_counted(place: Desk) -> None:
    place.open(place.issue(budgets={"risk": {"destructive": 1}}), "s-destroy")
    assert place.call("wipe_disk", "s-destroy", path="/ws/a").allowed
    assert place.call("wipe_disk", "s-destroy", path="/ws/a").reason is Reason.BUDGET_EXHAUSTED


def test_denied_calls_take_nothing(place: Desk) -> None:
    mission = place.issue(budgets={"calls": 1})
    place.open(mission, "s-denied")
    for _ in range(3):
        assert not place.call("read_file", "s-denied", path="/etc/x").allowed
    assert used(place, mission) == {}
    assert place.call("list_rows", "s-denied").allowed


def test_a_repeated_call_takes_once(place: Desk) -> None:
    mission = place.issue(budgets={"calls": 1})
    place.open(mission, "s-repeat")
    call = ToolCall(tool="list_rows", session="s-repeat", call_id="same")
    assert [place.ask(call).allowed for _ in range(3)] == [True] * 3
    assert used(place, mission) == {"calls": 1}


def test_a_held_call_takes_only_when_it_is_released(place: Desk) -> None:
    mission = place.issue(budgets={"calls": 1})
    place.open(mission, "s-held")
    call = ToolCall(tool="hold_me", session="s-held", call_id="held")
    held = place.ask(call)
    assert held.outcome is Outcome.REQUIRE_APPROVAL and held.approval is not None
    assert used(place, mission) == {}
    approved(place.gate, held)
    assert place.ask(call).allowed
    assert used(place, mission) == {"calls": 1}


def test_an_approval_cannot_pass_a_budget_that_was_used_up_meanwhile(place: Desk) -> None:
    place.open(place.issue(budgets={"calls": 1}), "s-late")
    call = ToolCall(tool="hold_me", session="s-late", call_id="late")
    held = place.ask(call)
    assert held.approval is not None
    assert place.call("list_rows", "s-late").allowed
    approved(place.gate, held)
    assert place.ask(call).reason is Reason.BUDGET_EXHAUSTED


def test_session_and_agent_budgets_count_beside_the_mission(place: Desk) -> None:
    mission = place.issue(budgets={"calls": 5}, session_budgets={"calls": 1}, agent_budgets={"calls": 2})
    for name in ("s-h1", "s-h2", "s-h3"):
        place.open(mission, name)
    assert place.call("list_rows", "s-h1").allowed
    assert not place.call("list_rows", "s-h1").allowed
    assert place.call("list_rows", "s-h2").allowed
    assert place.call("list_rows", "s-h3").reason is Reason.BUDGET_EXHAUSTED


def test_siblings_together_cannot_exceed_their_parent(place: Desk) -> None:
    parent = place.issue(budgets={"calls": 3}, delegation={"depth": 1, "subjects": ["bot"]})
    for name in ("one", "two"):
        place.open(place.delegate(parent, name, budgets={"calls": 2}), f"s-{name}")
    allowed = [place.call("list_rows", f"s-{name}").allowed for name in ("one", "two") * 3]
    assert sum(allowed) == 3
    assert used(place, parent) == {"calls": 3}


def test_wall_time_of_a_session_ends_it(place: Desk) -> None:
    place.open(place.issue(session_budgets={"seconds": 0}), "s-time")
    assert place.call("list_rows", "s-time").reason is Reason.BUDGET_EXHAUSTED


def ask_model(place: Desk, usage: Usage | None, session: str) -> None:
    decision = place.call("ask_model", session)
    token = sign_result(
        TOOL_KEY, decision_id=decision.decision_id, result_digest=sha256(canonical("answer")), usage=usage
    )
    assert place.result(decision, "answer", provenance=token).allowed


def test_a_proved_price_is_settled_and_the_rest_given_back(place: Desk) -> None:
    mission = place.issue(budgets={"money": {"EUR": 100}})
    place.open(mission, "s-settle")
    ask_model(place, Usage(money={"EUR": 7}), "s-settle")
    assert used(place, mission) == {"money.EUR": 7}


def test_what_is_not_proved_is_quarantined_and_not_given_back(place: Desk) -> None:
    mission = place.issue(budgets={"money": {"EUR": 100}})
    place.open(mission, "s-quarantine")
    ask_model(place, None, "s-quarantine")
    with place.home.store.reader() as reader:
        account = ledgers.read(reader, mission)
    assert account.quarantined == {"money.EUR": 30}
    assert account.used()["money.EUR"] == 30


def test_a_call_without_a_result_keeps_what_it_reserved(place: Desk) -> None:
    mission = place.issue(budgets={"money": {"EUR": 100}})
    place.open(mission, "s-silent")
    assert place.call("ask_model", "s-silent").allowed
    assert used(place, mission) == {"money.EUR": 30}


def test_many_threads_take_exactly_the_ceiling(place: Desk) -> None:
    mission = place.issue(budgets={"calls": 20})
    place.open(mission, "s-threads")
    allowed: list[bool] = []

    def work(number: int) -> None:
        for step in range(5):
            call = ToolCall(tool="list_rows", session="s-threads", call_id=f"t-{number}-{step}")
            allowed.append(place.gate.decide(call).allowed)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(allowed), len(allowed)) == (20, 50)
    assert used(place, mission) == {"calls": 20}


WORKER = """
import asyncio, sys
from pathlib import Path
from aegis.bootstrap import open_deployment
from aegis.core.call import ToolCall
home, name = Path(sys.argv[1]), sys.argv[2]
gate = open_deployment(home / "aegis.yaml", home, agent="bot").gate
print("ready", flush=True)
sys.stdin.readline()
async def main():
    calls = [ToolCall(tool="list_rows", session="s-processes", call_id=f"{name}-{n}") for n in range(100)]
    return await asyncio.gather(*(gate.adecide(call) for call in calls))
print(sum(decision.allowed for decision in asyncio.run(main())))
gate.close()
"""


def test_two_processes_with_two_hundred_callers_take_exactly_fifty(place: Desk) -> None:
    mission = place.issue(budgets={"calls": 50})
    place.open(mission, "s-processes")
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(place.home.home), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    counts = []
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        counts.append(int(worker.communicate(timeout=60)[0]))
    assert sum(counts) == 50
    assert used(place, mission) == {"calls": 50}


KILLED = """
import os, signal, sys
from pathlib import Path
from aegis.bootstrap import open_deployment
from aegis.core.call import ToolCall
home = Path(sys.argv[1])
gate = open_deployment(home / "aegis.yaml", home, agent="bot").gate
for number in range(1000):
    if gate.decide(ToolCall(tool="list_rows", session="s-killed", call_id=f"k-{number}")).allowed:
        print("allowed", flush=True)
    if number == 6:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_the_budget_exact(place: Desk) -> None:
    mission = place.issue(budgets={"calls": 10})
    place.open(mission, "s-killed")
    told = subprocess.run(
        [sys.executable, "-c", KILLED, str(place.home.home)], capture_output=True, text=True, check=False
    )
    assert told.stdout.count("allowed") == 7
    assert used(place, mission) == {"calls": 7}
    assert sum(place.call("list_rows", "s-killed").allowed for _ in range(6)) == 3


def test_a_killed_process_that_was_alone_leaves_the_budget_exact(tmp_path: Path) -> None:
    """What it was told stands in the log and the ledgers alike."""
    before = desk(tmp_path / "home", QUOTES)
    mission = before.issue(budgets={"calls": 10})
    before.open(mission, "s-killed")
    before.home.close()
    told = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "home")], capture_output=True, text=True, check=False
    )
    assert told.stdout.count("allowed") == 7
    after = Desk(home=open_deployment(tmp_path / "home" / "aegis.yaml", tmp_path / "home", agent="bot"), calls=1_000)
    assert used(after, mission) == {"calls": 7}
    assert sum(after.call("list_rows", "s-killed").allowed for _ in range(6)) == 3
    after.home.close()


def test_the_receipt_says_what_the_call_took(place: Desk) -> None:
    place.open(place.issue(budgets={"calls": 9, "effects": {"read": 9}}), "s-receipt")
    assert place.receipt(place.call("list_rows", "s-receipt"))["budget"] == {"cost": {"calls": 1, "effects.read": 1}}


def test_the_log_folder_holds_no_plain_budget_file(tmp_path: Path) -> None:
    place = desk(tmp_path / "home")
    place.open(place.issue(budgets={"calls": 1}))
    assert not list(tmp_path.rglob("*budget*"))
    place.home.close()
