"""Guards of other packages, and graphs of one's own."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.errors import ConfigError
from aegis.runs import GuardContext, RunReport, RunView, Stage
from aegis.runs.nodes import Nodes
from aegis.runs.request import RunAnswer, RunRequest
from aegis.runs.service import open_runs
from aegis.runs.spine import BuildGraph
from aegis.runs.state import RunState
from support.deployments import deployment
from support.run_world import config, provider, say, write_tools

BOT = Principal(id="bot", roles=frozenset({"agent"}), agent="bot")


class NoShouting:
    """A guard that somebody else wrote."""

    name = "no-shouting"
    stages: frozenset[Stage] = frozenset({"ingress"})

    def check(self, view: RunView, _: GuardContext) -> RunReport:
        if view.messages[-1]["content"].isupper():
            return RunReport(outcome=Outcome.BLOCK, reason=Reason.POLICY_DENIED, message="please do not shout")
        return RunReport()


def no_shouting(_: Any) -> NoShouting:
    return NoShouting()


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


async def run(
    tmp_path: Path, text: str, *, ingress: str = "[]", graphs: dict[str, BuildGraph] | None = None
) -> tuple[RunAnswer, int]:
    command, _ = write_tools(tmp_path)
    with provider() as model:
        model.script = [say("fine")]
        routes = f"{{default: {{models: [main], ingress: {ingress}}}}}"
        place = deployment(tmp_path / "home", config(model.url, command, routes=routes))
        try:
            async with open_runs(place, graphs) as runs:
                request = RunRequest(messages=({"role": "user", "content": text},))
                return await runs.start(BOT, request), len(model.seen)
        finally:
            place.close()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_TEST_KEY", "sk-test-of-runs")


async def test_a_guard_of_another_package_is_like_a_built_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint(name="no-shouting", value=f"{__name__}:no_shouting", group="aegis.run_guards")
    monkeypatch.setattr(EntryPoint, "load", lambda self: no_shouting)
    monkeypatch.setattr("aegis.runs.guards.entry_points", lambda group: [point] if group == point.group else [])
    answer, asked = await run(_folder(tmp_path, "a"), "HELLO", ingress="[no-shouting]")
    assert (answer.status, answer.message, asked) == ("refused", "please do not shout", 0)
    assert answer.events[0]["guard"] == "no-shouting"
    answer, asked = await run(_folder(tmp_path, "b"), "hello", ingress="[no-shouting]")
    assert (answer.output, asked) == ("fine", 1)


async def test_a_guard_that_nobody_installed_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no guard `no-shouting`"):
        await run(tmp_path, "x", ingress="[no-shouting]")


async def test_a_route_can_have_a_graph_of_its_own(tmp_path: Path) -> None:
    async def shorten(state: RunState) -> RunState:
        return {"output": state["output"][:2], "events": [{"stage": "shorten", "outcome": "sanitize"}]}

    def build(nodes: Nodes) -> StateGraph[Any, Any, Any, Any]:
        graph: StateGraph[Any, Any, Any, Any] = StateGraph(RunState)
        steps = {"ingress": nodes.ingress, "route": nodes.route, "model": nodes.model, "egress": nodes.egress}
        for name, node in {**steps, "shorten": shorten, "finalize": nodes.finalize}.items():
            graph.add_node(name, node)
        path = [START, *steps, "shorten", "finalize", END]
        for before, after in pairwise(path):
            graph.add_edge(before, after)
        return graph

    answer, _ = await run(tmp_path, "hello", graphs={"default": build})
    assert (answer.status, answer.output) == ("completed", "fi")
    assert "shorten" in [event["stage"] for event in answer.events]
