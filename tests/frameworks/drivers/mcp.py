"""MCP: an agent by hand whose tools are clients of the protocol, and servers that a client from elsewhere asks."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import openai
import uvicorn
from fastmcp import Client as FastClient
from fastmcp import FastMCP
from mcp.client.client import Client
from mcp.server import MCPServer

from aegis.enforce.scope import DECIDED, looping, scoped
from frameworks.model import Ability, Framework, Way
from support.worlds import World

# Calls a tool and gives the text of its result.
Tools = Callable[[str, dict[str, Any]], Awaitable[str]]


def offering(server: Any, world: World) -> Any:
    """A server of either kind with the tools."""

    @server.tool()
    def send_email(to: str, subject: str = "hello") -> str:
        return world.run("send_email", {"to": to, "subject": subject})

    @server.tool()
    async def read_file(path: str) -> str:
        return world.run("read_file", {"path": path})

    return server


def functions(world: World) -> list[Any]:
    """Servers of both kinds, each with the tools."""
    return [offering(MCPServer("office"), world), offering(FastMCP("office"), world)]


@asynccontextmanager
async def client(world: World) -> AsyncIterator[Tools]:
    # The server stands for one elsewhere: nothing of it is decided in this process.
    with scoped(looping(DECIDED)):
        connected = await Client(offering(MCPServer("office"), world)).__aenter__()

    async def call(name: str, arguments: dict[str, Any]) -> str:
        return str(getattr((await connected.call_tool(name, arguments)).content[0], "text", ""))

    try:
        yield call
    finally:
        await connected.__aexit__(None, None, None)


@asynccontextmanager
async def fast_client(world: World) -> AsyncIterator[Tools]:
    with scoped(looping(DECIDED)):
        connected = await FastClient(offering(FastMCP("office"), world)).__aenter__()

    async def call(name: str, arguments: dict[str, Any]) -> str:
        result = await connected.call_tool(name, arguments, raise_on_error=False)
        return str(getattr(result.content[0], "text", ""))

    try:
        yield call
    finally:
        await connected.__aexit__(None, None, None)


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """The address of a server of this process."""
    http = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
    listening = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(http.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        http.should_exit = http.force_exit = True
        await task


@asynccontextmanager
async def over_http(app: Any) -> AsyncIterator[Tools]:
    """A server of this process, asked by a client that is none of this package."""

    async with serving(app) as url:

        async def call(name: str, arguments: dict[str, Any]) -> str:
            asked = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": name, "arguments": arguments},
            }
            headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
            async with httpx.AsyncClient(timeout=120) as asking:
                answered = (await asking.post(url, json=asked, headers=headers)).json()
            found = answered["result"]["content"] if "result" in answered else [{"text": answered["error"]["message"]}]
            return str(found[0]["text"])

        yield call


def server(world: World) -> AbstractAsyncContextManager[Tools]:
    return over_http(offering(MCPServer("office"), world).streamable_http_app(stateless_http=True, json_response=True))


def fast_server(world: World) -> AbstractAsyncContextManager[Tools]:
    return over_http(offering(FastMCP("office"), world).http_app(stateless_http=True, json_response=True))


def loop(tools: Callable[[World], AbstractAsyncContextManager[Tools]]) -> Callable[[World], str]:
    """An agent by hand."""

    async def go(world: World) -> str:
        model = openai.AsyncOpenAI(base_url=world.provider.url, api_key="k", max_retries=0)
        messages: list[Any] = [{"role": "user", "content": "go"}]
        async with tools(world) as call:
            while True:
                answer = await model.chat.completions.create(model="m", messages=messages)
                message = answer.choices[0].message
                if not message.tool_calls:
                    return str(message.content)
                messages.append(message.model_dump(exclude_none=True))
                for one in message.model_dump()["tool_calls"]:
                    content = await call(one["function"]["name"], json.loads(one["function"]["arguments"]))
                    messages.append({"role": "tool", "tool_call_id": one["id"], "content": content})

    return lambda world: asyncio.run(go(world))


ABLE: frozenset[Ability] = frozenset({"validates", "runs"})
FRAMEWORK = Framework(
    adapters=("mcp",),
    unheard=frozenset({"*"}),
    again="the protocol carries no id of the model's call: every call is decided",
    ways=[
        Way(name="client", drive=loop(client), can=ABLE),
        Way(name="fastmcp client", drive=loop(fast_client), can=ABLE),
        Way(name="server over HTTP", drive=loop(server), can=ABLE),
        Way(name="fastmcp server over HTTP", drive=loop(fast_server), can=ABLE),
    ],
)
