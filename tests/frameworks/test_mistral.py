"""Conversations of Mistral: a function that no run context executes is not handed out, whole or streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from mistralai.extra.run.context import RunContext

from aegis.cli.demo.provider import Turn
from aegis.errors import UnhookedFramework
from frameworks.drivers.mistral import FRAMEWORK, client, functions
from frameworks.model import MAIL, READ, agent, hooked
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
