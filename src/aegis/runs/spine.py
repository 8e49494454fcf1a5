"""The spine as a LangGraph graph: ingress -> route -> (model -> tools)* -> egress -> finalize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph

from aegis.runs.nodes import Nodes
from aegis.runs.plan import BuildGraph
from aegis.runs.state import RunState


def standard_graph(nodes: Nodes) -> StateGraph[Any, Any, Any, Any]:
    """The graph of a route for which nobody built another. A refused run goes straight to its end."""
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(RunState)
    for name in ("ingress", "route", "model", "tools", "egress", "finalize"):
        graph.add_node(name, getattr(nodes, name))
    graph.add_edge(START, "ingress")
    graph.add_conditional_edges("ingress", _unless_refused("route"), ["route", "finalize"])
    graph.add_conditional_edges("route", _unless_refused("model"), ["model", "finalize"])
    graph.add_conditional_edges("model", _after_model, ["tools", "egress", "finalize"])
    graph.add_conditional_edges("tools", _unless_refused("model"), ["model", "finalize"])
    graph.add_edge("egress", "finalize")
    graph.add_edge("finalize", END)
    return graph


def compile_graph(nodes: Nodes, saver: BaseCheckpointSaver[str], build: BuildGraph) -> Any:
    """The graph, ready to run; every step is a checkpoint."""
    return build(nodes).compile(checkpointer=saver)


def _unless_refused(following: str) -> Callable[[RunState], str]:
    def next_node(state: RunState) -> str:
        return "finalize" if state.get("status") == "refused" else following

    return next_node


def _after_model(state: RunState) -> str:
    if state.get("status") == "refused":
        return "finalize"
    return "tools" if state["messages"][-1].get("tool_calls") else "egress"
