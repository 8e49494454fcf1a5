"""The canaries of the frameworks whose bodies have a witness: every live tool, over every public way to call it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, Final

from aegis.facade.coverage.model import Canary, sample


def langchain() -> Iterator[Canary]:
    """`run`, `invoke` and their async twins, with and without a call's id, and a tool node."""
    from langchain_core.messages import AIMessage
    from langchain_core.tools import BaseTool, tool

    @tool
    def aegis_canary(text: str) -> str:
        """Do nothing."""
        return text

    for one in _alive(BaseTool):
        given = sample(one.tool_call_schema.model_json_schema()) if one.args_schema is not None else {"input": "canary"}
        call = {"name": one.name, "args": given, "id": "call_canary_0123456789", "type": "tool_call"}
        yield from _twins(one.name, "run", one.run, one.arun, given)
        yield from _twins(one.name, "invoke", one.invoke, one.ainvoke, given)
        yield from _twins(one.name, "invoke by call", one.invoke, one.ainvoke, call)
        try:
            node: Any = import_module("langgraph.prebuilt").ToolNode([one])
        except ImportError:
            continue
        state = {"messages": [AIMessage("", tool_calls=[call])]}
        runtime = {"configurable": {"__pregel_runtime": import_module("langgraph.runtime").Runtime()}}
        yield Canary(tool=one.name, path="ToolNode.invoke", fire=partial(node.invoke, state, runtime))
    del aegis_canary


def crewai() -> Iterator[Canary]:
    """`run` and `arun` of a tool, and of the structured tool that agents make of it."""
    from crewai.tools import BaseTool, tool

    def nothing(text: str) -> str:
        """Do nothing."""
        return text

    canary = tool("aegis_canary")(nothing)

    for one in _alive(BaseTool):
        given = sample(one.args_schema.model_json_schema())
        yield Canary(tool=one.name, path="run", fire=partial(one.run, **given))
        yield Canary(tool=one.name, path="arun", fire=partial(_awaited, one.arun, **given))
        structured = one.to_structured_tool()
        yield from _twins(one.name, "CrewStructuredTool.invoke", structured.invoke, structured.ainvoke, given)
    del canary


CANARIES: Final[dict[str, Callable[[], Iterator[Canary]]]] = {"langchain": langchain, "crewai": crewai}


def _awaited(function: Any, **given: Any) -> Any:
    return asyncio.run(function(**given))


def _twins(tool: str, path: str, run: Any, arun: Any, given: Any) -> Iterator[Canary]:
    yield Canary(tool=tool, path=path, fire=lambda: run(given))
    yield Canary(tool=tool, path=f"{path} async", fire=lambda: asyncio.run(arun(given)))


def _alive(base: type) -> list[Any]:
    """Every tool object that there is, by name."""
    found = [one for one in gc.get_objects() if isinstance(one, base)]
    return sorted(found, key=lambda one: str(one.name))
