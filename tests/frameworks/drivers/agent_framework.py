"""Microsoft Agent Framework: agents over chat and responses, streamed, with middleware, and agents as tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import openai
from agent_framework import Agent, FunctionInvocationContext, function_middleware
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

from aegis.cli.demo.wire import Call, Turn
from frameworks.model import Framework, Way
from support.worlds import World


def client(world: World) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=world.provider.url, api_key="k", max_retries=0)


def chat(world: World) -> Any:
    return OpenAIChatCompletionClient(model="m", async_client=client(world))


def responses(world: World) -> Any:
    return OpenAIChatClient(model="m", async_client=client(world))


def tools(world: World) -> list[Any]:
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


def agent_of(world: World, made: Any, **options: Any) -> Agent:
    return Agent(**{"client": made, "name": "a", "tools": tools(world), **options})


def run(make: Callable[[World], Any]) -> Callable[[World], str]:
    return lambda world: str(asyncio.run(_text(agent_of(world, make(world)))))


async def _text(agent: Agent) -> str:
    return str((await agent.run("go")).text).rpartition("let me")[2]


def streamed(make: Callable[[World], Any]) -> Callable[[World], str]:
    async def go(world: World) -> str:
        text = ""
        async for update in agent_of(world, make(world)).run("go", stream=True):
            text = update.text or text
        return text

    return lambda world: asyncio.run(go(world))


def with_middleware(world: World) -> str:
    @function_middleware
    async def passing(context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        await call_next()

    return asyncio.run(_text(agent_of(world, chat(world), middleware=[passing])))


def as_tool(world: World) -> str:
    helper = agent_of(world, chat(world)).as_tool(name="delegate", description="helps", arg_name="task")
    return asyncio.run(_text(agent_of(world, chat(world), tools=[helper])))


def delegated(turns: Sequence[Turn]) -> Sequence[Turn]:
    first = Call(tool="delegate", arguments={"task": "go"}, id="call_delegate_012345")
    return [Turn(calls=(first,)), *turns, Turn(text="done")]


def again(world: World) -> str:
    """Middleware that runs every call twice."""

    @function_middleware
    async def twice(context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        await call_next()
        await call_next()

    return asyncio.run(_text(agent_of(world, chat(world), middleware=[twice])))


FRAMEWORK = Framework(
    adapters=("openai", "agent_framework"),
    ways=[
        Way(name="run over chat", drive=run(chat)),
        Way(name="run over responses", drive=run(responses)),
        Way(name="streamed over chat", drive=streamed(chat)),
        Way(name="streamed over responses", drive=streamed(responses)),
        Way(name="with middleware", drive=with_middleware),
        Way(name="agent as tool", drive=as_tool, wrap=delegated),
    ],
    again=again,
)
