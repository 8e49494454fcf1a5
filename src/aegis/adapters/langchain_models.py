"""Model calls of LangChain in an agent whose tool node runs the tools: those calls are enforced there."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

from aegis.adapters._patch import Method, Patches
from aegis.adapters._scope import Scope, aitems_in, current_scope, deferring, items_in, running, scoped


def hook(patches: Patches) -> tuple[str, ...]:
    """Hook the places where an agent runs and where a model is asked; gives their names."""

    def models(module: Any) -> None:
        patches.replace(module.BaseChatModel, "_generate_with_cache", _asking)
        patches.replace(module.BaseChatModel, "_agenerate_with_cache", _aasking)
        patches.replace(module.BaseChatModel, "stream", _streaming)
        patches.replace(module.BaseChatModel, "astream", _astreaming)

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


def _asking(original: Method) -> Method:
    def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
        with scoped(_deferred(kwargs)):
            return original(model, *args, **kwargs)

    return generate


def _aasking(original: Method) -> Method:
    async def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
        with scoped(_deferred(kwargs)):
            return await original(model, *args, **kwargs)

    return generate


def _streaming(original: Method) -> Method:
    def stream(model: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return items_in(_deferred(kwargs), original(model, *args, **kwargs))

    return stream


def _astreaming(original: Method) -> Method:
    def astream(model: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        return aitems_in(_deferred(kwargs), original(model, *args, **kwargs))

    return astream


def _deferred(options: dict[str, Any]) -> Scope:
    """The scope of a model call: the bound tools that the graph around it runs."""
    runs = current_scope().runs
    return deferring(runs & {_name_of(tool) for tool in options.get("tools") or ()})


def _name_of(tool: Any) -> str:
    """The name of a bound tool in whatever form its provider takes it."""
    if not isinstance(tool, dict):
        return str(getattr(tool, "name", ""))
    function = tool.get("function")
    return str((function if isinstance(function, dict) else tool).get("name", ""))
