"""The canaries of the frameworks whose bodies have a witness: every live tool, over every public way to call it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final, Literal

from msgspec import Struct

from aegis.enforce.witness import standing_in
from aegis.errors import CallRefused

# What is fired, and what came of it.

State = Literal["covered", "UNCOVERED", "not reached", "host says them"]


class Canary(Struct, frozen=True, kw_only=True):
    """One call of one registered tool over one path of its framework.

    `body` gives what stands in for the body while the canary is fired, where no witness does.
    """

    tool: str
    path: str
    fire: Callable[[], Any]
    body: Callable[[], AbstractContextManager[None]] = nullcontext


class Covered(Struct, frozen=True, kw_only=True):
    """Whether a decision came before the body; `not reached` where the framework let the canary not so far.

    Of the user's words it says whether they arrive, or have to be said by the host.
    """

    framework: str
    tool: str
    path: str
    state: State


def sample(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments that a JSON Schema of an object takes, as simple as can be."""
    properties = schema.get("properties") or {}
    return {name: _value(one) for name, one in properties.items() if isinstance(one, dict)}


def _value(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return _value(schema[choice][0])
    if schema.get("type") == "object":
        return sample(schema)
    values: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "null": None}
    return values.get(str(schema.get("type")), "canary")


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


# The canaries of the frameworks whose bodies are functions that their tools hold: a trap stands in for each.

_ID: Final = "call_canary_0123456789"


def llama_index() -> Iterator[Canary]:
    """`call` and `acall` of a function tool, and what models that call tools themselves use."""
    calling: Any = import_module("llama_index.core.tools.calling")
    from llama_index.core.tools import FunctionTool

    for one in sorted(objects(FunctionTool), key=lambda tool: str(tool.metadata.get_name())):
        name = one.metadata.get_name()
        given = sample(one.metadata.get_parameters_dict())
        trapped = _trapped(name, one, "_fn", "_async_fn")
        yield trapped("call", partial(one.call, **given))
        yield trapped("acall", partial(awaited, one.acall, **given))
        yield trapped("call_tool", partial(calling.call_tool, one, given))
        yield trapped("acall_tool", partial(awaited, calling.acall_tool, tool=one, arguments=given))


def smolagents() -> Iterator[Canary]:
    """A tool called, as an agent calls it, and from the code of a code agent."""
    from smolagents import LocalPythonExecutor, Model, Tool, ToolCallingAgent

    for one in alive(Tool):
        if type(one).__module__ == "smolagents.default_tools":
            continue
        given = sample({"properties": one.inputs})
        trapped = _trapped(one.name, one, "forward")
        agent = ToolCallingAgent(tools=[one], model=Model(), verbosity_level=0)
        executor = LocalPythonExecutor([])
        executor.send_tools({one.name: one})
        yield trapped("Tool.__call__", partial(one, **given))
        yield trapped("ToolCallingAgent.execute_tool_call", partial(agent.execute_tool_call, one.name, given))
        yield trapped("LocalPythonExecutor", partial(executor, f"{one.name}(**{given!r})"))


def strands() -> Iterator[Canary]:
    """`stream` of a tool, and a tool called by hand through its agent."""
    from strands import Agent
    from strands.types.tools import AgentTool

    model: Any = import_module("strands.models").Model

    class Silent(model):  # type: ignore[misc]
        """A model that is never asked."""

        def update_config(self, **model_config: Any) -> None:
            """Keep nothing."""

        def get_config(self) -> dict[str, Any]:
            return {}

        def structured_output(self, *args: Any, **kwargs: Any) -> Any:
            raise CallRefused("a canary asks no model")

        def stream(self, *args: Any, **kwargs: Any) -> Any:
            raise CallRefused("a canary asks no model")

    for one in sorted(objects(AgentTool), key=lambda tool: str(tool.tool_name)):
        if not hasattr(one, "_tool_func"):
            continue
        given = sample(one.tool_spec["inputSchema"]["json"])
        use = {"toolUseId": _ID, "name": one.tool_name, "input": given}
        trapped = _trapped(one.tool_name, one, "_tool_func")
        agent = Agent(model=Silent(), tools=[one], callback_handler=None)
        yield trapped("AgentTool.stream", partial(_drained, partial(one.stream, use, {})))
        yield trapped("Agent.tool", partial(getattr(agent.tool, one.tool_name), **given))


def openai_agents() -> Iterator[Canary]:
    """A run of an agent whose model calls the tool, whole and streamed, and the tool invoked alone."""
    from agents import FunctionTool, RunConfig, Runner
    from agents.tool import invoke_function_tool
    from agents.tool_context import ToolContext

    for one in alive(FunctionTool):
        arguments = json.dumps(sample(one.params_json_schema))
        trapped = _trapped(one.name, one, "on_invoke_tool")
        context: Any = ToolContext(None, tool_name=one.name, tool_call_id=_ID, tool_arguments=arguments)
        alone = partial(awaited, invoke_function_tool, function_tool=one, context=context, arguments=arguments)
        quiet = RunConfig(tracing_disabled=True)
        run = partial(awaited, Runner.run, starting_agent=_calling(one, arguments), input="canary", run_config=quiet)
        yield trapped("invoke_function_tool", alone)
        yield trapped("Runner.run", run)


def _calling(tool: Any, arguments: str) -> Any:
    """An agent whose model asks for one call and is then done."""
    from agents import Agent, ModelResponse, Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    base: Any = import_module("agents.models.interface").Model
    call = ResponseFunctionToolCall(arguments=arguments, call_id=_ID, name=tool.name, type="function_call")
    text = ResponseOutputText(annotations=[], text="done", type="output_text")
    said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
    answers = iter([call, said])

    class Asking(base):  # type: ignore[misc]
        """Answers what is scripted."""

        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            return ModelResponse(output=[next(answers)], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise CallRefused("a canary asks no model")

    return Agent(name="canary", model=Asking(), tools=[tool])


def mistral() -> Iterator[Canary]:
    """The functions of every run context, executed as a conversation executes them."""
    from mistralai.client.models import FunctionCallEntry
    from mistralai.extra.run.context import RunContext

    for context in objects(RunContext):
        for name, one in sorted(context._callable_tools.items()):
            body = next((member for member in ("callable", "awaitable") if hasattr(one, member)), None)
            if body is None:
                continue  # a tool of an MCP server, whose client is a path of its own
            given = sample(one.tool.function.parameters)
            entry = FunctionCallEntry(tool_call_id=_ID, name=name, arguments=given, id=_ID)
            run = partial(awaited, context.execute_function_calls, function_calls=[entry])
            yield _trapped(name, one, body)("RunContext.execute_function_calls", run)


def claude_agent() -> Iterator[Canary]:
    """The tools of an SDK MCP server, called by a message of the program."""
    from claude_agent_sdk import SdkMcpTool, create_sdk_mcp_server
    from claude_agent_sdk._internal.query import Query

    for one in alive(SdkMcpTool):
        schema = one.input_schema
        given = sample(schema) if isinstance(schema, dict) and "properties" in schema else {"text": "canary"}
        if isinstance(schema, dict) and "properties" not in schema:
            given = {name: _of(kind) for name, kind in schema.items()}
        server = create_sdk_mcp_server("canary", tools=[one])["instance"]
        query = Query(transport=SimpleNamespace(), is_streaming_mode=True, sdk_mcp_servers={"canary": server})
        run = partial(_spoken, query._handle_sdk_mcp_request, one.name, given)
        yield _trapped(one.name, one, "handler")("SDK MCP server", run)


def _spoken(handle: Callable[..., Any], tool: str, given: dict[str, Any]) -> None:
    """A conversation of the protocol that ends in one call."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "canary", "version": "0"}}
    messages: tuple[dict[str, Any], ...] = (
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": given}},
    )

    async def go() -> None:
        for message in messages:
            await handle("canary", message)

    asyncio.run(go())


def mcp() -> Iterator[Canary]:
    """The tools of every server of this process, called by a client and by the server's own handler."""
    for server in objects(getattr(_module("mcp.server"), "MCPServer", ())):
        client = import_module("mcp.client.client").Client
        for one in server._tool_manager.list_tools():
            trapped, given = _trapped(one.name, one, "fn"), sample(one.parameters)
            yield trapped("Client.call_tool", partial(_asked, partial(client, server), one.name, given))
            yield trapped("the handler of a server", partial(_handled, server._lowlevel_server, one.name, given))
            yield trapped("MCPServer.call_tool", partial(awaited, server.call_tool, name=one.name, arguments=given))
    for server in objects(getattr(_module("fastmcp"), "FastMCP", ())):
        client = import_module("fastmcp").Client
        for one in awaited(server.list_tools):
            if hasattr(one, "fn"):
                trapped, given = _trapped(one.name, one, "fn"), sample(one.parameters)
                yield trapped("fastmcp.Client.call_tool", partial(_asked, partial(client, server), one.name, given))
                yield trapped("FastMCP.call_tool", partial(awaited, server.call_tool, name=one.name, arguments=given))
    for server in objects(getattr(_module("mcp.server.fastmcp"), "FastMCP", ())):
        connect = import_module("mcp.shared.memory").create_connected_server_and_client_session
        for one in server._tool_manager.list_tools():
            trapped, given = _trapped(one.name, one, "fn"), sample(one.parameters)
            asked = partial(_asked, partial(connect, server._mcp_server), one.name, given)
            yield trapped("ClientSession.call_tool", asked)


def _module(name: str) -> Any:
    """A module that only some versions and environments have."""
    try:
        return import_module(name)
    except ImportError:
        return None


def _asked(connect: Callable[[], Any], tool: str, given: dict[str, Any]) -> None:
    async def go() -> None:
        async with connect() as connected:
            await connected.call_tool(tool, given)

    asyncio.run(go())


def _handled(server: Any, tool: str, given: dict[str, Any]) -> None:
    params = import_module("mcp.types").CallToolRequestParams(name=tool, arguments=given)
    context = SimpleNamespace(protocol_version="2025-06-18", request_id="canary", meta=None, session=None)
    asyncio.run(server.get_request_handler("tools/call").handler(context, params))


FUNCTION_CANARIES: Final[dict[str, Callable[[], Iterator[Canary]]]] = {
    "llama_index": llama_index,
    "smolagents": smolagents,
    "strands": strands,
    "openai_agents": openai_agents,
    "mistral": mistral,
    "claude_agent": claude_agent,
    "mcp": mcp,
}


def _trapped(tool: str, owner: Any, *names: str) -> Callable[[str, Callable[[], Any]], Canary]:
    """Makes canaries of a tool whose body is what `owner` holds under these names."""

    def made(path: str, fire: Callable[[], Any]) -> Canary:
        return Canary(tool=tool, path=path, fire=fire, body=partial(standing_in, tool, owner, *names))

    return made


def _of(kind: Any) -> Any:
    return {int: 1, float: 1.0, bool: True, list: [], dict: {}}.get(kind, "canary")


def _drained(events: Callable[[], Any]) -> None:
    async def go() -> None:
        async for _ in events():
            continue

    asyncio.run(go())
