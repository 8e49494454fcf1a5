"""Parts of runs as another package would bring them, with the entry points under which it would register them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from itertools import pairwise
from typing import Any

from langgraph.graph import END, START, StateGraph

from aegis.core.outcome import Outcome, Reason
from aegis.runs import GuardContext, RunReport, RunView, Stage
from aegis.runs.nodes import Nodes
from aegis.runs.providers import Question
from aegis.runs.routing import Candidate
from aegis.runs.state import RunState
from aegis.wire.client import ModelAnswer, ModelRequest
from aegis.wire.tool_lists import ToolDescription

LEDGER: list[tuple[str, str, str]] = []
"""What the finalizer saw: status, reason, output."""


class NoShouting:
    name = "no-shouting"
    stages: frozenset[Stage] = frozenset({"ingress"})

    def check(self, view: RunView, _: GuardContext) -> RunReport:
        if view.messages[-1]["content"].isupper():
            return RunReport(outcome=Outcome.BLOCK, reason=Reason.POLICY_DENIED, message="please do not shout")
        return RunReport()


class Ledger:
    """Sees every end, and withholds answers that hold a word."""

    name = "ledger"
    stages: frozenset[Stage] = frozenset({"finalize"})

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._withheld = options.get("withheld", "nothing of it")

    def check(self, view: RunView, _: GuardContext) -> RunReport:
        LEDGER.append((view.status, view.reason, view.output))
        if self._withheld in view.output:
            return RunReport(outcome=Outcome.BLOCK, reason=Reason.POLICY_DENIED, message="this is not said")
        return RunReport()


class Cheapest:
    name = "cheapest"

    def order(self, candidates: Sequence[Candidate], _: Mapping[str, str]) -> Sequence[str]:
        return [one.name for one in sorted(candidates, key=lambda one: one.output_price)]


class Inventing:
    name = "inventing"

    def order(self, candidates: Sequence[Candidate], _: Mapping[str, str]) -> Sequence[str]:
        return [*(one.name for one in candidates), "another"]


class Parrot:
    """A model in this process: calls its first tool once, then says what came back."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._broken = options.get("broken", False)

    async def ask(self, question: Question) -> ModelAnswer:
        if self._broken:
            raise RuntimeError("the text of an error is nobody's business")
        last = question.messages[-1]
        if last["role"] == "tool" or not question.tools:
            return ModelAnswer(text=f"{question.model} heard {last['content']}", read=1, wrote=1)
        name = question.tools[0]["function"]["name"]
        return ModelAnswer(text="", calls=(ModelRequest(call_id="p1", name=name, arguments='{"path": "notes/a.txt"}'),))


class Shelf:
    """Tools in this process."""

    def __init__(self, _: Mapping[str, Any]) -> None:
        self.fetched: list[Any] = []

    async def tools(self) -> Sequence[ToolDescription]:
        return [ToolDescription(name="fetch_note", description="Fetches a note.")]

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> Any:
        if tool != "fetch_note" or arguments in self.fetched:
            raise RuntimeError("this was fetched before")
        self.fetched.append(arguments)
        return {"note": f"of {arguments['path']}"}

    async def aclose(self) -> None:
        self.fetched.clear()


def no_shouting(_: Mapping[str, Any]) -> NoShouting:
    return NoShouting()


def cheapest(_: Mapping[str, Any]) -> Cheapest:
    return Cheapest()


def inventing(_: Mapping[str, Any]) -> Inventing:
    return Inventing()


async def _shorten(state: RunState) -> RunState:
    return {"output": state["output"][:2], "events": [{"stage": "shorten", "outcome": "sanitize"}]}


def shortening(nodes: Nodes) -> StateGraph[Any, Any, Any, Any]:
    """A graph without tools, and with a node of its own."""
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(RunState)
    steps = {"ingress": nodes.ingress, "route": nodes.route, "model": nodes.model, "egress": nodes.egress}
    for name, node in {**steps, "shorten": _shorten, "finalize": nodes.finalize}.items():
        graph.add_node(name, node)
    for before, after in pairwise([START, *steps, "shorten", "finalize", END]):
        graph.add_edge(before, after)
    return graph


def shortening_graph(_: Mapping[str, Any]) -> Any:
    return shortening


_REGISTERED = {
    "aegis.run_guards": {"no-shouting": "no_shouting", "ledger": "Ledger", "unmade": "nothing_of_this_name"},
    "aegis.run_routers": {"cheapest": "cheapest", "inventing": "inventing"},
    "aegis.run_providers": {"parrot": "Parrot"},
    "aegis.run_tools": {"shelf": "Shelf"},
    "aegis.run_graphs": {"shortening": "shortening_graph"},
}


def registered(*, group: str) -> list[EntryPoint]:
    """What `importlib.metadata.entry_points` would find of the package."""
    return [
        EntryPoint(name=name, value=f"{__name__}:{attribute}", group=group)
        for name, attribute in _REGISTERED.get(group, {}).items()
    ]
