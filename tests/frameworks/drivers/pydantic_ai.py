"""Pydantic AI: runs sync, async and streamed, iterated graphs, toolsets, agents that ask agents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.toolsets import FunctionToolset

from aegis.cli.demo.wire import Call, Turn
from frameworks.model import Framework, Way
from support.worlds import World


def model(world: World) -> Any:
    return OpenAIChatModel("m", provider=OpenAIProvider(base_url=world.provider.url, api_key="k"))


def functions(world: World) -> list[Any]:
    def send_email(to: str, subject: str = "hello") -> str:
        """Send a mail."""
        return world.run("send_email", {"to": to, "subject": subject})

    async def read_file(path: str) -> str:
        """Read a file."""
        return world.run("read_file", {"path": path})

    def book(count: int, item: str = "tea") -> str:
        """Book something."""
        return world.run("book", {"count": count, "item": item})

    return [send_email, read_file, book]


def agent_of(world: World) -> Agent:
    return Agent(model(world), tools=functions(world))


def sync(world: World) -> str:
    return str(agent_of(world).run_sync("go").output)


def toolset(world: World) -> str:
    return str(asyncio.run(Agent(model(world), toolsets=[FunctionToolset(functions(world))]).run("go")).output)


def stream(world: World) -> str:
    async def go() -> str:
        async with agent_of(world).iter("go") as run:
            async for node in run:
                if Agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as events:
                        async for _ in events:
                            continue
        assert run.result is not None
        return str(run.result.output)

    return asyncio.run(go())


def sub_agent(world: World) -> str:
    async def delegate(question: str) -> str:
        """Ask the helper."""
        return str((await agent_of(world).run(question)).output)

    return str(asyncio.run(Agent(model(world), tools=[delegate]).run("go")).output)


def delegated(turns: Sequence[Turn]) -> Sequence[Turn]:
    first = Call(tool="delegate", arguments={"question": "go"}, id="call_delegate_012345")
    return [Turn(calls=(first,)), *turns, Turn(text="done")]


class Twice(AbstractCapability[Any]):
    """Runs every call twice."""

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        await handler(args)
        return await handler(args)


def again(world: World) -> str:
    return str(Agent(model(world), tools=functions(world), capabilities=[Twice()]).run_sync("go").output)


FRAMEWORK = Framework(
    adapters=("openai", "pydantic_ai"),
    ways=[
        Way(name="run sync", drive=sync),
        Way(name="run with a toolset", drive=toolset),
        Way(name="iterated and streamed", drive=stream),
        Way(name="sub-agent", drive=sub_agent, wrap=delegated),
    ],
    again=again,
)
