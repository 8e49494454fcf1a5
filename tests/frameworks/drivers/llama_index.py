"""LlamaIndex: function agents, workflows of several agents, streams, and models that call tools themselves."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.tools import AsyncBaseTool, FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.llms.openai import OpenAI

from aegis.cli.demo.provider import Call, Turn
from frameworks.model import EVERYTHING, Framework, Way, blocking_functions
from frameworks.spoken import SPOKEN, ToldProvider, spoken
from support.worlds import World


def model(world: World) -> Any:
    return OpenAI(model="gpt-4o", api_base=world.provider.url, api_key="k", max_retries=0)


def tools(world: World) -> list[Any]:
    return [FunctionTool.from_defaults(one) for one in blocking_functions(world)]


def async_tools(world: World) -> list[Any]:
    def asynchronous(one: Any) -> Any:
        async def body(**given: Any) -> Any:
            return one.fn(**given)

        body.__annotations__ = one.fn.__annotations__
        body.__signature__ = __import__("inspect").signature(one.fn)  # type: ignore[attr-defined]
        return FunctionTool.from_defaults(async_fn=body, name=one.metadata.name, description="d")

    return [asynchronous(one) for one in tools(world)]


def classes(world: World) -> list[Any]:
    """Tools that are no functions: classes of their own, with the schema of the function."""

    class OfClass(AsyncBaseTool):
        def __init__(self, function: FunctionTool) -> None:
            self._function = function

        @property
        def metadata(self) -> ToolMetadata:
            return self._function.metadata

        def call(self, **given: Any) -> ToolOutput:
            return ToolOutput(content=self._function.fn(**given), tool_name="t", raw_input=given, raw_output=None)

        async def acall(self, **given: Any) -> ToolOutput:
            return self.call(**given)

    return [OfClass(one) for one in tools(world)]


def specification(world: World) -> list[Any]:
    """The tools of a `ToolSpec`, which makes functions of its methods."""
    made = {one.metadata.name: one.fn for one in tools(world)}

    class Office(BaseToolSpec):
        spec_functions = ["send_email", "read_file", "book"]  # noqa: RUF012

        def send_email(self, to: str, subject: str = "hello") -> str:
            """Send a mail."""
            return made["send_email"](to, subject)

        def read_file(self, path: str) -> str:
            """Read a file."""
            return made["read_file"](path)

        def book(self, count: int, item: str = "tea") -> str:
            """Book something."""
            return made["book"](count, item)

    return Office().to_tool_list()


def agent_of(world: World, made: list[Any], **options: Any) -> FunctionAgent:
    return FunctionAgent(name="a", description="d", tools=made, llm=model(world), system_prompt="s", **options)


def workflow(world: World, **options: Any) -> AgentWorkflow:
    return AgentWorkflow(agents=[agent_of(world, tools(world), **options)])


def react(world: World, **options: Any) -> ReActAgent:
    return ReActAgent(name="a", description="d", tools=tools(world), llm=model(world), **options)


def handoff(world: World) -> AgentWorkflow:
    clerk = agent_of(world, tools(world), streaming=False)
    desk = FunctionAgent(name="desk", description="d", tools=[], llm=model(world), can_handoff_to=["a"])
    return AgentWorkflow(agents=[desk, clerk], root_agent="desk")


def handed_over(turns: Any) -> Any:
    given = {"to_agent": "a", "reason": "r"}
    return [Turn(calls=(Call(tool="handoff", arguments=given, id="call_handoff_012345"),)), *turns]


def drive(make: Any) -> Any:
    def run(world: World) -> str:
        async def go() -> str:
            return str((await make(world).run(user_msg="go")).response.content)

        return asyncio.run(go())

    return run


def events(world: World) -> str:
    async def go() -> str:
        handler = agent_of(world, tools(world), streaming=True).run(user_msg="go")
        async for _ in handler.stream_events():
            continue
        return str((await handler).response.content)

    return asyncio.run(go())


class Twice(FunctionAgent):
    """An agent that runs every call twice."""

    async def _call_tool(self, *args: Any, **options: Any) -> Any:
        await super()._call_tool(*args, **options)
        return await super()._call_tool(*args, **options)


def again(world: World) -> Any:
    return Twice(name="a", description="d", tools=tools(world), llm=model(world), system_prompt="s", streaming=False)


class Direct(FunctionAgent):
    """An agent that runs a mail's function itself."""

    async def _call_tool(self, ctx: Any, tool: Any, tool_input: dict[str, Any]) -> ToolOutput:
        if tool.metadata.name != "send_email":
            return await super()._call_tool(ctx, tool, tool_input)
        said = str(self.ran(tool, tool_input))
        return ToolOutput(content=said, tool_name=tool.metadata.name, raw_input=tool_input, raw_output=said)

    def ran(self, tool: Any, given: dict[str, Any]) -> Any:
        return tool.fn(**given)


class Real(Direct):
    """The function that the tool was made of."""

    def ran(self, tool: Any, given: dict[str, Any]) -> Any:
        return tool.real_fn(**given)


class Passing(FunctionAgent):
    """An agent that looks on."""

    async def _call_tool(self, ctx: Any, tool: Any, tool_input: dict[str, Any]) -> ToolOutput:
        return await super()._call_tool(ctx, tool, {**tool_input})


def of(agent: Any) -> Any:
    return drive(lambda w: agent(name="a", description="d", tools=tools(w), llm=model(w), streaming=False))


def partial(world: World) -> list[Any]:
    """A tool with an argument that the host has fixed."""

    def send_email(to: str, subject: str) -> str:
        """Send a mail."""
        return world.run("send_email", {"to": to, "subject": subject})

    return [FunctionTool.from_defaults(send_email, partial_params={"subject": "fixed"}), *tools(world)[1:]]


def composed(world: World) -> list[Any]:
    """A tool of a class whose body uses another tool's function."""
    log = FunctionTool.from_defaults(lambda line: line, name="log", description="d")

    class Mail(AsyncBaseTool):
        @property
        def metadata(self) -> ToolMetadata:
            return tools(world)[0].metadata

        def call(self, **given: Any) -> ToolOutput:
            log.fn(line="sending")
            text = world.run("send_email", given)
            return ToolOutput(content=text, tool_name="send_email", raw_input=given, raw_output=text)

        async def acall(self, **given: Any) -> ToolOutput:
            return self.call(**given)

    return [Mail(), *tools(world)[1:]]


ABLE = EVERYTHING - {"coerces"}
OF_CLASSES = ABLE - {"defaults", "validates", "broken"}
FRAMEWORK = Framework(
    adapters=("openai", "llama_index"),
    again=drive(again),
    provide=ToldProvider,
    ways=[
        Way(name="agent", drive=drive(lambda w: agent_of(w, tools(w), streaming=False)), can=ABLE),
        Way(name="agent stream", drive=drive(lambda w: agent_of(w, tools(w), streaming=True)), can=ABLE),
        Way(name="agent events", drive=events, can=ABLE),
        Way(name="agent, async tools", drive=drive(lambda w: agent_of(w, async_tools(w), streaming=False)), can=ABLE),
        Way(
            name="agent, tools of classes",
            drive=drive(lambda w: agent_of(w, classes(w), streaming=False)),
            can=OF_CLASSES,
        ),
        Way(
            name="agent, tool specification",
            drive=drive(lambda w: agent_of(w, specification(w), streaming=False)),
            can=ABLE,
        ),
        Way(name="ReAct agent", drive=drive(lambda w: react(w, streaming=False)), wrap=spoken, can=SPOKEN & ABLE),
        Way(name="ReAct agent stream", drive=drive(lambda w: react(w, streaming=True)), wrap=spoken, can=SPOKEN & ABLE),
        Way(name="handoff", drive=drive(handoff), wrap=handed_over, can=ABLE, hands_off="handoff"),
        Way(name="workflow", drive=drive(lambda w: workflow(w, streaming=False)), can=ABLE),
        Way(name="workflow stream", drive=drive(lambda w: workflow(w, streaming=True)), can=ABLE),
    ],
    beside={
        "an agent that calls `tool.fn`": of(Direct),
        "an agent that calls `tool.real_fn`": of(Real),
    },
    fair={
        "an agent that looks on": of(Passing),
        "an argument that is fixed": drive(lambda w: agent_of(w, partial(w), streaming=False)),
        "a tool that uses another": drive(lambda w: agent_of(w, composed(w), streaming=False)),
    },
)
