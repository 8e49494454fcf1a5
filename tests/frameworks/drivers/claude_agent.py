"""Claude Agent SDK: queries and clients over the real program, tools in process, of a server and of sub-agents."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from mcp.server import MCPServer

from aegis.cli.demo.provider import EVENTS, LAST, Call, ScriptedProvider, Turn, answer
from aegis.enforce.scope import DECIDED, looping, scoped
from frameworks.model import EVERYTHING, Agent, Framework, Way
from support.worlds import World

NAMES = ("send_email", "read_file", "book", "find_customer")


class Told(Agent):
    """A world whose model is told things by the program in the results of its calls."""

    def result_of(self, call: Call) -> Any:
        return super().result_of(call).partition("\n<system-reminder>")[0].rstrip("\n")


class Provider(ScriptedProvider):
    """Says the tools' names as the program tells them to a model: with their server in front."""

    world = Told

    def __enter__(self) -> Any:
        self.script = [replace(turn, calls=tuple(map(_of_server, turn.calls))) for turn in self.script]
        return super().__enter__()

    def next_answer(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Any:
        """The next turn; a request without tools is one of the program's own, for a title."""
        if body.get("tools"):
            return super().next_answer(path, headers, body)
        whole = answer("anthropic", LAST, 0, "scripted")
        return EVENTS["anthropic"](LAST, whole) if body.get("stream") else whole


def _of_server(call: Call) -> Call:
    return replace(call, tool=f"mcp__office__{call.tool}") if call.tool in NAMES else call


def functions(world: World) -> list[Any]:
    @tool("send_email", "Send a mail.", {"type": "object", "properties": SENT, "required": ["to"]})
    async def send_email(given: dict[str, Any]) -> dict[str, Any]:
        return _text(world.run("send_email", {"subject": "hello", **given}))

    @tool("read_file", "Read a file.", {"path": str})
    async def read_file(given: dict[str, Any]) -> dict[str, Any]:
        return _text(world.run("read_file", given))

    return [send_email, read_file]


SENT = {"to": {"type": "string"}, "subject": {"type": "string"}}


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def options(world: World, home: str, **more: Any) -> ClaudeAgentOptions:
    environment = {
        "ANTHROPIC_BASE_URL": world.provider.anthropic_url,
        "ANTHROPIC_API_KEY": "k",
        "HOME": home,
        "CLAUDE_CONFIG_DIR": home,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    given: dict[str, Any] = {
        "model": "claude-sonnet-4-5",
        "env": environment,
        "cwd": home,
        "setting_sources": [],
        "stderr": lambda line: None,
        "mcp_servers": {"office": create_sdk_mcp_server("office", tools=functions(world))},
        "allowed_tools": ["mcp__office__send_email", "mcp__office__read_file", "Agent"],
    }
    return ClaudeAgentOptions(**{**given, **more})


async def asked(world: World, home: str, **more: Any) -> str:
    text = ""
    async for message in query(prompt="go", options=options(world, home, **more)):
        text = message.result or text if isinstance(message, ResultMessage) else text
    return text


@asynccontextmanager
async def served(world: World) -> AsyncIterator[str]:
    """An MCP server that the program asks over HTTP: its tools are none of this process to the SDK."""
    server = MCPServer("office")

    @server.tool(structured_output=False)
    def send_email(to: str, subject: str = "hello") -> str:
        return world.run("send_email", {"to": to, "subject": subject})

    @server.tool(structured_output=False)
    def read_file(path: str) -> str:
        return world.run("read_file", {"path": path})

    http = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical", lifespan="on"))
    listening = socket.create_server(("127.0.0.1", 0))
    # The server stands for one elsewhere: nothing of it is decided in this process.
    with scoped(looping(DECIDED)):
        task = asyncio.create_task(http.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        http.should_exit = http.force_exit = True
        await task


async def hosted(world: World, home: str) -> str:
    """A client whose tools are an MCP server's, with a hook and a permission callback of the host's own."""

    async def hook(event: Any, tool_use_id: str | None, context: Any) -> Any:
        return {}

    async def permit(name: str, given: dict[str, Any], context: Any) -> Any:
        return PermissionResultAllow(updated_input=given)

    hooks: Any = {"PreToolUse": [HookMatcher(hooks=[hook])]}
    async with served(world) as url:
        servers: Any = {"office": {"type": "http", "url": url}}
        given = options(world, home, mcp_servers=servers, hooks=hooks, can_use_tool=permit, allowed_tools=[])
        text = ""
        async with ClaudeSDKClient(given) as client:
            await client.query("go")
            async for message in client.receive_response():
                if isinstance(message, AssistantMessage):
                    text = "".join(getattr(block, "text", "") for block in message.content) or text
        return text


async def sub_agent(world: World, home: str) -> str:
    helper = AgentDefinition(description="helps", prompt="help")
    return await asked(world, home, agents={"helper": helper})


def delegated(turns: Sequence[Turn]) -> Sequence[Turn]:
    arguments = {"description": "go", "prompt": "go", "subagent_type": "helper", "run_in_background": False}
    return [
        Turn(calls=(Call(tool="Agent", arguments=arguments, id="call_delegate_012345"),)),
        *turns,
        Turn(text="done"),
    ]


class Twice(SubprocessCLITransport):
    """A program that sends every call of a tool in this process twice, and forgets that it did."""

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async for message in super().read_messages():
            request = message.get("request", {})
            if request.get("message", {}).get("method") == "tools/call":
                second = {**request["message"], "id": SECOND}
                yield {**message, "request_id": SECOND, "request": {**request, "message": second}}
            yield message

    async def write(self, data: str) -> None:
        if SECOND not in data:
            await super().write(data)


SECOND = "the-same-call-again"


async def again(world: World, home: str) -> str:
    text = ""
    given = options(world, home)
    async for message in query(prompt="go", options=given, transport=Twice("go", given)):
        text = message.result or text if isinstance(message, ResultMessage) else text
    return text


def drive(run: Callable[[World, str], Any]) -> Callable[[World], str]:
    def driven(world: World) -> str:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            return str(asyncio.run(run(world, str(Path(home).resolve()))))

    return driven


ABLE = EVERYTHING - {"coerces", "defaults"}
FRAMEWORK = Framework(
    adapters=("mcp", "claude_agent"),
    again=drive(again),
    provide=Provider,
    ways=[
        Way(name="query", drive=drive(asked), can=ABLE),
        Way(name="client, tools of a server", drive=drive(hosted), can=ABLE),
        Way(name="sub-agent", drive=drive(sub_agent), wrap=delegated, can=ABLE, hands_off="Agent"),
    ],
)
