"""Strands: agents called, streamed and in order, tools of classes, agents as tools, calls without a model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from strands import Agent, tool
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent, HookProvider, HookRegistry
from strands.models.openai import OpenAIModel
from strands.tools.executors import SequentialToolExecutor

from aegis.cli.demo.wire import Call, Turn
from frameworks.model import Framework, Way
from support.worlds import World


def model(world: World, **options: Any) -> Any:
    arguments = {"base_url": world.provider.url, "api_key": "k", "max_retries": 0}
    return OpenAIModel(client_args=arguments, model_id="m", **options)


def tools(world: World) -> list[Any]:
    @tool
    def send_email(to: str, subject: str = "hello") -> str:
        """Send a mail."""
        return world.run("send_email", {"to": to, "subject": subject})

    @tool
    async def read_file(path: str) -> str:
        """Read a file."""
        return world.run("read_file", {"path": path})

    @tool
    def book(count: int, item: str = "tea") -> str:
        """Book something."""
        return world.run("book", {"count": count, "item": item})

    return [send_email, read_file, book]


def agent_of(world: World, **options: Any) -> Agent:
    return Agent(**{"model": model(world), "tools": tools(world), "callback_handler": None, **options})


def called(world: World) -> str:
    return str(agent_of(world)("go")).strip()


def streamed(world: World) -> str:
    async def go() -> str:
        text = ""
        async for event in agent_of(world).stream_async("go"):
            text = str(event["result"]) if "result" in event else text
        return text.strip()

    return asyncio.run(go())


class Late(HookProvider):
    """Changes the arguments after the model, in a hook of its own."""

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self.change)

    def change(self, event: BeforeToolCallEvent) -> None:
        event.tool_use["input"].pop("unknown", None)


def in_order(world: World) -> str:
    return str(agent_of(world, tool_executor=SequentialToolExecutor(), hooks=[Late()])("go")).strip()


def as_tool(world: World) -> str:
    helper = agent_of(world, name="delegate", description="helps")
    return str(agent_of(world, tools=[helper.as_tool()])("go")).strip()


def delegated(turns: Sequence[Turn]) -> Sequence[Turn]:
    first = Call(tool="delegate", arguments={"input": "go"}, id="call_delegate_012345")
    return [Turn(calls=(first,)), *turns, Turn(text="done")]


def again(world: World) -> str:
    """A hook that has every call run twice."""
    tried: set[str] = set()

    class Twice(HookProvider):
        def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
            registry.add_callback(AfterToolCallEvent, self.change)

        def change(self, event: Any) -> None:
            event.retry = event.tool_use["toolUseId"] not in tried
            tried.add(event.tool_use["toolUseId"])

    return str(agent_of(world, hooks=[Twice()])("go")).strip()


FRAMEWORK = Framework(
    adapters=("openai", "strands"),
    ways=[
        Way(name="agent", drive=called),
        Way(name="agent streamed", drive=streamed),
        Way(name="agent in order, with hooks", drive=in_order),
        Way(name="agent as tool", drive=as_tool, wrap=delegated),
    ],
    again=again,
)
