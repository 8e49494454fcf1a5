"""Every way in which the `anthropic` package hands tool calls to an agent, driven to the end of a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import anthropic
from anthropic import beta_async_tool, beta_tool
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message

from contract.openai_paths import MAX_TURNS, TLS, Ask, asynchronously
from support.worlds import SCHEMAS, Path, World

TOOLS: Any = [
    {"name": name, "input_schema": {"type": "object", "properties": properties}} for name, properties in SCHEMAS.items()
]
COMMON: dict[str, Any] = {"model": "m", "max_tokens": 99, "tools": TOOLS}


def client(world: World) -> anthropic.Anthropic:
    http = anthropic.DefaultHttpxClient(verify=TLS)
    return anthropic.Anthropic(base_url=world.anthropic_url, api_key=world.key, max_retries=0, http_client=http)


def aclient(world: World) -> anthropic.AsyncAnthropic:
    http = anthropic.DefaultAsyncHttpxClient(verify=TLS)
    url = world.anthropic_url
    return anthropic.AsyncAnthropic(base_url=url, api_key=world.key, max_retries=0, http_client=http)


def messages(ask: Ask) -> Path:
    """An agent over messages, of which `ask` gives one answer."""

    def drive(world: World, prompts: Sequence[str]) -> str:
        history: list[Any] = []
        text = ""
        for prompt in prompts:
            history.append({"role": "user", "content": prompt})
            for _ in range(MAX_TURNS):
                message = ask(world, history)
                history.append({"role": "assistant", "content": message.content})
                text = "".join(block.text for block in message.content if block.type == "text")
                uses = [block for block in message.content if block.type == "tool_use"]
                if message.stop_reason != "tool_use":
                    assert not uses
                    break
                results = [
                    {"type": "tool_result", "tool_use_id": use.id, "content": world.run(use.name, dict(use.input))}
                    for use in uses
                ]
                history.append({"role": "user", "content": results})
        return text

    return drive


def _create(world: World, history: list[Any]) -> Any:
    return client(world).messages.create(messages=history, **COMMON)


async def _acreate(world: World, history: list[Any]) -> Any:
    return await aclient(world).messages.create(messages=history, **COMMON)


def _raw(world: World, history: list[Any]) -> Any:
    return client(world).messages.with_raw_response.create(messages=history, **COMMON).parse()


def _body(world: World, history: list[Any]) -> Any:
    # An agent that reads the bytes itself.
    with client(world).messages.with_streaming_response.create(messages=history, **COMMON) as response:
        return Message.model_validate(json.loads(response.read()))


def _stream_helper(world: World, history: list[Any]) -> Any:
    with client(world).messages.stream(messages=history, **COMMON) as stream:
        assert list(stream.text_stream) is not None
        return stream.get_final_message()


async def _astream_helper(world: World, history: list[Any]) -> Any:
    async with aclient(world).messages.stream(messages=history, **COMMON) as stream:
        return await stream.get_final_message()


def _stream(world: World, history: list[Any]) -> Any:
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in client(world).messages.create(messages=history, stream=True, **COMMON):
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    return snapshot


async def _astream(world: World, history: list[Any]) -> Any:
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    async for event in await aclient(world).messages.create(messages=history, stream=True, **COMMON):
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    return snapshot


def _beta(world: World, history: list[Any]) -> Any:
    return client(world).beta.messages.create(messages=history, **COMMON)


def _beta_stream(world: World, history: list[Any]) -> Any:
    with client(world).beta.messages.stream(messages=history, **COMMON) as stream:
        return stream.get_final_message()


def _parse(world: World, history: list[Any]) -> Any:
    return client(world).messages.parse(messages=history, **COMMON)


def runner(**options: Any) -> Path:
    """The package's own loop, which runs the tools itself."""

    def drive(world: World, prompts: Sequence[str]) -> str:
        @beta_tool
        def send_email(to: str, subject: str = "hello") -> str:
            """Send."""
            return world.run("send_email", {"to": to, "subject": subject})

        @beta_tool
        def read_file(path: str) -> str:
            """Read."""
            return world.run("read_file", {"path": path})

        given: Any = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": prompts[0]}], **options}
        run: Any = client(world).beta.messages.tool_runner(tools=[send_email, read_file], **given)
        if options.get("stream"):
            message = None
            for stream in run:
                message = stream.get_final_message()
            assert message is not None
        else:
            message = run.until_done()
        return "".join(block.text for block in message.content if block.type == "text")

    return drive


def arunner(**options: Any) -> Path:
    """The async twin of `runner`."""

    async def drive(world: World, prompts: Sequence[str]) -> str:
        @beta_async_tool
        async def send_email(to: str, subject: str = "hello") -> str:
            """Send."""
            return world.run("send_email", {"to": to, "subject": subject})

        @beta_async_tool
        async def read_file(path: str) -> str:
            """Read."""
            return world.run("read_file", {"path": path})

        given: Any = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": prompts[0]}], **options}
        run: Any = aclient(world).beta.messages.tool_runner(tools=[send_email, read_file], **given)
        if options.get("stream"):
            message = None
            async for stream in run:
                message = await stream.get_final_message()
            assert message is not None
        else:
            message = await run.until_done()
        return "".join(block.text for block in message.content if block.type == "text")

    return lambda world, prompts: asyncio.run(drive(world, prompts))


MANUAL: dict[str, Path] = {
    "anthropic messages.create": messages(_create),
    "anthropic messages.create async": messages(asynchronously(_acreate)),
    "anthropic messages.create raw": messages(_raw),
    "anthropic messages.create raw bytes": messages(_body),
    "anthropic messages.stream": messages(_stream_helper),
    "anthropic messages.stream async": messages(asynchronously(_astream_helper)),
    "anthropic messages.create stream": messages(_stream),
    "anthropic messages.create stream async": messages(asynchronously(_astream)),
    "anthropic beta.messages.create": messages(_beta),
    "anthropic beta.messages.stream": messages(_beta_stream),
    "anthropic messages.parse": messages(_parse),
}
RUNNERS: dict[str, Path] = {
    "anthropic tool_runner": runner(),
    "anthropic tool_runner stream": runner(stream=True),
    "anthropic tool_runner eager": runner(stream=True, run_tools_eagerly=True),
    "anthropic tool_runner async": arunner(),
    "anthropic tool_runner async stream": arunner(stream=True),
    "anthropic tool_runner async eager": arunner(stream=True, run_tools_eagerly=True),
}
