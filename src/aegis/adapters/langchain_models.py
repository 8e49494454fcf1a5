"""Model calls of LangChain: those that a tool node runs are enforced there, the others in the answer.

A loop of the host's own runs a tool by the call that it was handed. That call is decided with the arguments that the
tool is going to run with, so that it is known again there, and people are asked about it once.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from aegis.adapters._patch import Method, Patches
from aegis.adapters._scope import Scope, aitems_in, current_scope, deferring, items_in, running, scoped

# The arguments with which a tool runs what it is given; raises where it would not run.
Final = Callable[[Any, dict[str, Any]], dict[str, Any]]

_bound: WeakValueDictionary[str, Any] = WeakValueDictionary()


def hook(patches: Patches, final: Final) -> tuple[str, ...]:
    """Hook the places where an agent runs and where a model is asked; gives their names."""
    asking = _Asking(final)

    def models(module: Any) -> None:
        patches.family(module.BaseChatModel, {"bind_tools": _binding})
        patches.replace(module.BaseChatModel, "_generate_with_cache", asking.whole)
        patches.replace(module.BaseChatModel, "_agenerate_with_cache", asking.awhole)
        patches.replace(module.BaseChatModel, "stream", asking.streamed)
        patches.replace(module.BaseChatModel, "astream", asking.astreamed)

    def graphs(module: Any) -> None:
        patches.replace(module.Pregel, "stream", _graph)
        patches.replace(module.Pregel, "astream", _agraph)

    patches.when("langchain_core.language_models.chat_models", models)
    patches.when("langgraph.pregel.main", graphs)
    return ("BaseChatModel", "Pregel.stream", "Pregel.astream")


def _graph(original: Method) -> Method:
    def stream(graph: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return items_in(running(_tools_of(graph)), original(graph, *args, **kwargs))

    return stream


def _agraph(original: Method) -> Method:
    def astream(graph: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        return aitems_in(running(_tools_of(graph)), original(graph, *args, **kwargs))

    return astream


def _tools_of(graph: Any) -> set[str]:
    """The tools that the tool nodes of a graph run."""
    module: Any = sys.modules.get("langgraph.prebuilt.tool_node")
    if module is None:
        return set()
    nodes = [node.bound for node in graph.nodes.values()]
    return {name for node in nodes if isinstance(node, module.ToolNode) for name in node.tools_by_name}


def _binding(original: Method) -> Method:
    """The tools that a model is told of; of two with one name, the one that was bound last."""

    def bind_tools(model: Any, tools: Any, *args: Any, **kwargs: Any) -> Any:
        from langchain_core.tools import BaseTool

        given = list(tools)
        _bound.update({one.name: one for one in given if isinstance(one, BaseTool)})
        return original(model, given, *args, **kwargs)

    return bind_tools


class _Asking:
    """Model calls, in the scope of what becomes of their answers."""

    def __init__(self, final: Final) -> None:
        self._final = final

    def whole(self, original: Method) -> Method:
        def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
            with scoped(self._scope(kwargs)):
                return original(model, *args, **kwargs)

        return generate

    def awhole(self, original: Method) -> Method:
        async def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
            with scoped(self._scope(kwargs)):
                return await original(model, *args, **kwargs)

        return generate

    def streamed(self, original: Method) -> Method:
        def stream(model: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            return items_in(self._scope(kwargs), original(model, *args, **kwargs))

        return stream

    def astreamed(self, original: Method) -> Method:
        def astream(model: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            return aitems_in(self._scope(kwargs), original(model, *args, **kwargs))

        return astream

    def _scope(self, options: dict[str, Any]) -> Scope:
        """The bound tools that the graph around it runs, and how the others would run."""
        names = {_name_of(tool) for tool in options.get("tools") or ()}
        runs = current_scope().runs & names
        others = {name: tool for name in names - runs if (tool := _bound.get(name)) is not None}
        return deferring(runs)._replace(final={name: partial(self._final, tool) for name, tool in others.items()})


def _name_of(tool: Any) -> str:
    """The name of a bound tool in whatever form its provider takes it."""
    if not isinstance(tool, dict):
        return str(getattr(tool, "name", ""))
    function = tool.get("function")
    return str((function if isinstance(function, dict) else tool).get("name", ""))
