"""The canaries of the frameworks whose bodies have a witness: every live tool, over every public way to call it."""

from __future__ import annotations

import asyncio
import gc
import inspect
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

    for one in alive(BaseTool):
        given = sample(one.tool_call_schema.model_json_schema()) if one.args_schema is not None else {"input": "canary"}
        call = {"name": one.name, "args": given, "id": "call_canary_0123456789", "type": "tool_call"}
        yield from twins(one.name, "run", one.run, one.arun, given)
        yield from twins(one.name, "invoke", one.invoke, one.ainvoke, given)
        yield from twins(one.name, "invoke by call", one.invoke, one.ainvoke, call)
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

    for one in alive(BaseTool):
        given = sample(one.args_schema.model_json_schema())
        yield Canary(tool=one.name, path="run", fire=partial(one.run, **given))
        yield Canary(tool=one.name, path="arun", fire=partial(awaited, one.arun, **given))
        structured = one.to_structured_tool()
        yield from twins(one.name, "CrewStructuredTool.invoke", structured.invoke, structured.ainvoke, given)
    del canary


def pydantic_ai() -> Iterator[Canary]:
    """A run of an agent whose model calls the tools of a toolset, whole and streamed."""
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.toolsets import FunctionToolset

    for toolset in objects(FunctionToolset):
        for name in sorted(toolset.tools):
            agent: Any = Agent(TestModel(call_tools=[name]), toolsets=[toolset])
            yield Canary(tool=name, path="Agent.run", fire=partial(agent.run_sync, "canary"))
            yield Canary(tool=name, path="Agent.run_stream", fire=partial(_streamed, agent))


def google_adk() -> Iterator[Canary]:
    """`run_async` of a function tool, as a flow calls it."""
    from types import SimpleNamespace

    from google.adk.tools import FunctionTool

    context = SimpleNamespace(function_call_id=None, invocation_id=None)
    for one in alive(FunctionTool):
        declared = one._get_declaration()
        schema = declared.parameters_json_schema if declared is not None else None
        given = sample(schema) if isinstance(schema, dict) else _by_name(one.func)
        yield Canary(
            tool=one.name, path="run_async", fire=partial(awaited, one.run_async, args=given, tool_context=context)
        )


def agent_framework() -> Iterator[Canary]:
    """`invoke` of a function tool, with and without a call's id."""
    from agent_framework import FunctionTool

    for one in alive(FunctionTool):
        if one.declaration_only:
            continue
        given = sample(one.parameters())
        yield Canary(tool=one.name, path="invoke", fire=partial(awaited, one.invoke, arguments=given))
        identified = partial(awaited, one.invoke, arguments=given, tool_call_id="call_canary_0123456789")
        yield Canary(tool=one.name, path="invoke by call", fire=identified)


def autogen() -> Iterator[Canary]:
    """`run_json` of a tool, and the calls of workbenches, whole and streamed."""
    from autogen_core import CancellationToken
    from autogen_core.tools import BaseTool, StaticStreamWorkbench, StaticWorkbench

    for one in alive(BaseTool):
        given = sample(one.schema.get("parameters") or {})
        run = partial(awaited, one.run_json, args=given, cancellation_token=CancellationToken())
        yield Canary(tool=one.name, path="run_json", fire=run)
        called = partial(awaited, StaticWorkbench([one]).call_tool, name=one.name, arguments=given)
        yield Canary(tool=one.name, path="Workbench.call_tool", fire=called)
        events = partial(StaticStreamWorkbench([one]).call_tool_stream, one.name, given)
        yield Canary(tool=one.name, path="Workbench.call_tool_stream", fire=partial(awaited, _all, events=events))


CANARIES: Final[dict[str, Callable[[], Iterator[Canary]]]] = {
    "langchain": langchain,
    "crewai": crewai,
    "pydantic_ai": pydantic_ai,
    "google_adk": google_adk,
    "agent_framework": agent_framework,
    "autogen": autogen,
}


async def _all(events: Callable[[], Any]) -> list[Any]:
    return [event async for event in events()]


def _streamed(agent: Any) -> None:
    async def go() -> None:
        async with agent.run_stream("canary") as answer:
            await answer.get_output()

    asyncio.run(go())


def _by_name(function: Any) -> dict[str, Any]:
    """Something for every parameter that a function must be given."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: "canary" for one in parameters if one.default is one.empty and one.name != "tool_context"}


def awaited(function: Any, **given: Any) -> Any:
    return asyncio.run(function(**given))


def twins(tool: str, path: str, run: Any, arun: Any, given: Any) -> Iterator[Canary]:
    yield Canary(tool=tool, path=path, fire=lambda: run(given))
    yield Canary(tool=tool, path=f"{path} async", fire=lambda: asyncio.run(arun(given)))


def alive(base: type) -> list[Any]:
    """Every tool object that there is, by name."""
    return sorted(objects(base), key=lambda one: str(one.name))


def objects(base: type | tuple[type, ...]) -> list[Any]:
    """Every object of a class that there is; those that stand for others are not asked what they are."""
    return [one for one in gc.get_objects() if issubclass(type(one), base)]
