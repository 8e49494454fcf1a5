"""LlamaIndex: function agents, workflows of several agents, streams, and models that call tools themselves."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI

from frameworks.model import EVERYTHING, Framework, Way
from support.worlds import World


def model(world: World) -> Any:
    return OpenAI(model="gpt-4o", api_base=world.provider.url, api_key="k", max_retries=0)


def tools(world: World) -> list[Any]:
    def send_email(to: str, subject: str = "hello") -> str:
        """Send a mail."""
        return world.run("send_email", {"to": to, "subject": subject})

    def read_file(path: str) -> str:
        """Read a file."""
        return world.run("read_file", {"path": path})

    def book(count: int, item: str = "tea") -> str:
        """Book something."""
        return world.run("book", {"count": count, "item": item})

    return [FunctionTool.from_defaults(one) for one in (send_email, read_file, book)]


def async_tools(world: World) -> list[Any]:
    def asynchronous(one: Any) -> Any:
        async def body(**given: Any) -> Any:
            return one.fn(**given)

        body.__annotations__ = one.fn.__annotations__
        body.__signature__ = __import__("inspect").signature(one.fn)  # type: ignore[attr-defined]
        return FunctionTool.from_defaults(async_fn=body, name=one.metadata.name, description="d")

    return [asynchronous(one) for one in tools(world)]


def agent_of(world: World, made: list[Any], **options: Any) -> FunctionAgent:
    return FunctionAgent(name="a", description="d", tools=made, llm=model(world), system_prompt="s", **options)


def workflow(world: World, **options: Any) -> AgentWorkflow:
    return AgentWorkflow(agents=[agent_of(world, tools(world), **options)])


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


ABLE = EVERYTHING - {"coerces"}
FRAMEWORK = Framework(
    adapters=("openai", "llama_index"),
    ways=[
        Way(name="agent", drive=drive(lambda w: agent_of(w, tools(w), streaming=False)), can=ABLE),
        Way(name="agent stream", drive=drive(lambda w: agent_of(w, tools(w), streaming=True)), can=ABLE),
        Way(name="agent events", drive=events, can=ABLE),
        Way(name="agent, async tools", drive=drive(lambda w: agent_of(w, async_tools(w), streaming=False)), can=ABLE),
        Way(name="workflow", drive=drive(lambda w: workflow(w, streaming=False)), can=ABLE),
        Way(name="workflow stream", drive=drive(lambda w: workflow(w, streaming=True)), can=ABLE),
    ],
)
