"""Conversations of Mistral: a function that no run context executes is not handed out, whole or streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mistralai.client import Mistral
from mistralai.extra.run.context import RunContext

from aegis.cli.demo.provider import Turn
from aegis.errors import UnhookedFramework
from frameworks.drivers.mistral import FRAMEWORK, client, functions
from frameworks.model import MAIL, READ, agent, hooked
from support.proxied import BLOCK, proxied
from support.worlds import World, scripted


def start(world: World) -> None:
    client(world).beta.conversations.start(model="m", inputs="go")


def start_stream(world: World) -> None:
    list(client(world).beta.conversations.start_stream(model="m", inputs="go"))


def start_stream_async(world: World) -> None:
    async def go() -> None:
        async for _ in await client(world).beta.conversations.start_stream_async(model="m", inputs="go"):
            continue

    asyncio.run(go())


def run(world: World) -> None:
    """A run that executes one of the two functions."""
    asyncio.run(_with_context(world, lambda context: _whole(world, context)))


def run_stream(world: World) -> None:
    asyncio.run(_with_context(world, lambda context: _streamed(world, context)))


async def _with_context(world: World, converse: Callable[[Any], Any]) -> None:
    async with RunContext(model="m") as context:
        context.register_func(functions(world)[1])
        await converse(context)


async def _whole(world: World, context: Any) -> None:
    await client(world).beta.conversations.run_async(run_ctx=context, inputs="go")


async def _streamed(world: World, context: Any) -> None:
    async for _ in await client(world).beta.conversations.run_stream_async(run_ctx=context, inputs="go"):
        continue


@pytest.mark.parametrize("converse", [start, start_stream, start_stream_async, run, run_stream])
def test_a_function_that_no_run_context_executes_is_not_handed_out(converse: Callable[[World], None]) -> None:
    decider, turns = scripted(), (Turn(calls=(READ, MAIL)), Turn(text="done"))
    with hooked(FRAMEWORK, decider), agent(FRAMEWORK, FRAMEWORK.ways[0], *turns) as world:
        with pytest.raises(UnhookedFramework):
            converse(world)
        assert world.ran == []


@pytest.mark.parametrize("streamed", [False, True])
def test_behind_the_model_proxy_the_client_gets_what_may_run(streamed: bool, tmp_path: Path) -> None:
    with proxied(tmp_path / "home", Turn(text="let me", calls=(MAIL, READ)), tool=BLOCK) as (world, _):
        mistral = Mistral(api_key=world.key, server_url=world.door)
        said: list[Any] = [{"role": "user", "content": "go"}]
        if streamed:
            events = [event.data.choices for event in mistral.chat.stream(model="m", messages=said)]
            deltas = [choices[0].delta for choices in events if choices]
            calls = [call for delta in deltas for call in delta.tool_calls or []]
        else:
            calls = mistral.chat.complete(model="m", messages=said).choices[0].message.tool_calls or []
        assert [call.function.name for call in calls] == ["read_file"]
        said.append({"role": "assistant", "content": "", "tool_calls": [call.model_dump() for call in calls]})
        said.append({"role": "tool", "tool_call_id": calls[0].id, "content": "some text"})
        mistral.chat.complete(model="m", messages=said)
        assert "`send_email` was not run" in str(world.asked[1].body)
