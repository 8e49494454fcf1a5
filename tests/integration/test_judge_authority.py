"""What a judge may do: less than its worker, whatever its own file says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from aegis.core.outcome import Outcome
from aegis.core.ports import Search
from aegis.gate.control import set_agent
from support.missions import Desk, desk
from support.scripted_model import GOOD, ScriptedModel, scripted_model


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, model: ScriptedModel) -> Iterator[Desk]:
    workspace, home = tmp_path / "ws", tmp_path / "home"
    (workspace / "private").mkdir(parents=True)
    (workspace / "notes.txt").write_text("the plan is fine")
    (workspace / "private" / "key").write_text("a private word")
    home.mkdir(mode=0o700)
    (home / "look.yaml").write_text(
        f"name: look\nmodel: {model.openai}\ntools: {{fs.read: true, fs.list: true, cmd.run: [wc -l]}}\n"
    )
    text = f"previews: {{workspace: {workspace}}}\njudges: [{{name: look, judge: look.yaml}}]\n"
    made = desk(home, f"guards: {{content: {{mode: observe}}}}\n{text}")
    yield made
    made.home.close()


def says(model: ScriptedModel, *calls: tuple[str, dict[str, Any]]) -> None:
    model.script = lambda asked: GOOD if len(asked["messages"]) > 2 else list(calls)


def results(model: ScriptedModel) -> list[Any]:
    """What the judge read as the results of its calls."""
    return [json.loads(one["content"]) for one in model.asked[-1]["messages"] if one["role"] == "tool"]


def own(place: Desk) -> list[tuple[str, str]]:
    """The decisions on the judge's own calls, oldest first."""
    with place.home.store.reader() as reader:
        found = reader.search(Search(kind="decision", principal="judge:look", limit=100))
    bodies = [orjson.loads(entry.body) for entry in found]
    return [(body["decision"], body["reason"]) for body in bodies][::-1]


READ = ("fs.read", {"path": "notes.txt"})


def test_without_a_mission_a_judge_uses_the_tools_of_its_file(place: Desk, model: ScriptedModel) -> None:
    says(model, READ, ("cmd.run", {"command": ["wc", "-l", "notes.txt"]}))
    assert place.call(session=None).allowed
    assert [one["exit_code"] for one in results(model)] == [0, 0]


def test_a_mission_allows_its_judge_what_it_allows_its_worker(
    tmp_path: Path, place: Desk, model: ScriptedModel
) -> None:
    scope = {"paths": [f"glob:{tmp_path}/ws/**"]}
    place.open(place.issue(tools={"allow": ["read_file"]}, effects=["read"], scope=scope))
    says(model, READ, ("fs.list", {"path": "."}), ("fs.read", {"path": f"{tmp_path}/ws/notes.txt"}))
    assert place.call().allowed
    assert [one["exit_code"] for one in results(model)] == [0, 0, 0]


CLOSED: dict[str, tuple[dict[str, Any], tuple[str, dict[str, Any]]]] = {
    "a path outside of the scope": ({"scope": {"paths": ["glob:/elsewhere/**"]}}, READ),
    "a forbidden path": (
        {"forbidden_scope": {"paths": ["glob:WS/private/**"]}}, ("fs.read", {"path": "private/key"}),
    ),
    "a forbidden path, round about": (
        {"forbidden_scope": {"paths": ["glob:WS/private/**"]}}, ("fs.read", {"path": "x/../private/key"}),
    ),
    "an effect that it does not name": ({"effects": ["write"]}, READ),
    "a command, without the effect": ({"effects": ["read"]}, ("cmd.run", {"command": ["wc", "-l", "notes.txt"]})),
    "a forbidden tool": ({"tools": {"allow": ["*"], "forbid": ["fs.read"]}}, READ),
    "the judge's tools by their server": ({"tools": {"allow": ["*"], "forbid": ["judge:look/*"]}}, READ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_a_judge_may_not_do_what_the_mission_of_its_worker_forbids(
    tmp_path: Path, place: Desk, model: ScriptedModel, name: str
) -> None:
    changes, asked = CLOSED[name]
    changes = json.loads(json.dumps(changes).replace("WS", f"{tmp_path}/ws"))
    mission = {"scope": {"paths": [f"glob:{tmp_path}/ws/**"]}, "effects": ["read", "write"], **changes}
    place.open(place.issue(**mission))
    says(model, asked)
    place.call("write_file" if changes.get("effects") == ["write"] else "ask_model")
    assert model.asked
    (said,) = results(model)
    assert set(said) == {"error"}
    assert own(place) == [("block", own(place)[0][1])]


def test_a_judge_stops_with_its_mission_and_with_its_worker(place: Desk, model: ScriptedModel, tmp_path: Path) -> None:
    scope = {"paths": [f"glob:{tmp_path}/ws/**"]}
    mission = place.issue(scope=scope)
    place.open(mission)
    turns: Iterator[Callable[[], None]] = iter([lambda: place.move(mission, "revoked"), lambda: _stop(place)])

    def meddle(asked: Any) -> Any:
        if len(asked["messages"]) > 2:
            return GOOD
        next(turns)()
        return [READ]

    model.script = meddle
    assert place.call("ask_model").outcome is Outcome.BLOCK
    assert own(place) == [("block", "revoked")]
    place.open(place.issue(scope=scope), "s-2")
    assert place.call("ask_model", "s-2").outcome is Outcome.BLOCK
    assert own(place) == [("block", "revoked")] * 2


def _stop(place: Desk) -> None:
    place.gate.record(set_agent("bot", state="revoked", reason="", principal="ann"))
