"""MCP servers whose tools runs use: started at the first need, one session each, restarted when they died."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mcp import Client, MCPError, StdioServerParameters

from aegis.core.tool_description import ToolDescription
from aegis.dialects.tool_lists import read_tools
from aegis.errors import AegisError, InvalidCall
from aegis.pipeline.settings_runs import ToolServerSettings

START_SECONDS: Final = 60.0  # a package manager may have to fetch the server first
MAX_PAGES: Final = 1_000


class ToolFailed(AegisError):
    """A tool's server is gone, slow, or does not speak the protocol; whether the tool acted is not known."""


_Started = tuple[Client, tuple[ToolDescription, ...], asyncio.Event]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Session:
    client: Client
    stop: asyncio.Event
    owner: asyncio.Task[None]
    tools: tuple[ToolDescription, ...]


class ToolServers:
    """The servers by name. Used from one event loop; `aclose` ends every program."""

    def __init__(self, servers: Mapping[str, ToolServerSettings]) -> None:
        self._servers = servers
        self._sessions: dict[str, _Session] = {}
        self._starting: dict[str, asyncio.Lock] = {}

    async def tools(self, server: str) -> tuple[ToolDescription, ...]:
        """What the server announces. Raises `ToolFailed`."""
        return (await self._session(server)).tools

    async def call(self, server: str, tool: str, arguments: dict[str, Any], seconds: float) -> Any:
        """The tool's result as JSON: its structured content, or its content blocks. Raises `ToolFailed`."""
        session = await self._session(server)
        try:
            async with asyncio.timeout(seconds):
                result = await session.client.call_tool(tool, arguments)
        except (MCPError, TimeoutError, OSError, RuntimeError, ValueError) as error:
            if session.owner.done():
                self._sessions.pop(server, None)
            raise ToolFailed(f"the tool `{tool}` of `{server}` gave no result: {type(error).__name__}") from error
        answer = result.model_dump(by_alias=True, exclude_none=True, mode="json")
        content = answer.get("structuredContent", answer.get("content", []))
        return {"error": content} if answer.get("isError") else content

    async def aclose(self) -> None:
        """Ends every session and its program."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            session.stop.set()
        await asyncio.gather(*(session.owner for session in sessions), return_exceptions=True)

    async def _session(self, server: str) -> _Session:
        async with self._starting.setdefault(server, asyncio.Lock()):
            found = self._sessions.get(server)
            if found is not None and not found.owner.done():
                return found
            ready: asyncio.Future[_Started] = asyncio.get_running_loop().create_future()
            owner = asyncio.create_task(self._own(server, ready))
            try:
                async with asyncio.timeout(START_SECONDS):
                    client, tools, stop = await asyncio.shield(ready)
            except (TimeoutError, ToolFailed):
                owner.cancel()
                raise ToolFailed(f"the tool server `{server}` did not start") from None
            session = _Session(client=client, stop=stop, owner=owner, tools=tools)
            self._sessions[server] = session
            return session

    async def _own(self, server: str, ready: asyncio.Future[_Started]) -> None:
        """The task that a session lives in: the protocol's client is entered and left by one task."""
        settings, stop = self._servers[server], asyncio.Event()
        handed = {name: os.environ[name] for name in ("PATH", *settings.environment) if name in os.environ}
        parameters = StdioServerParameters(command=settings.command[0], args=settings.command[1:], env=handed)
        try:
            async with Client(parameters) as client:
                ready.set_result((client, await _list(client, server), stop))
                await stop.wait()
        except (OSError, MCPError, InvalidCall, ToolFailed, ExceptionGroup) as error:
            if not ready.done():
                ready.set_exception(ToolFailed(f"the tool server `{server}` did not start: {type(error).__name__}"))


async def _list(client: Client, server: str) -> tuple[ToolDescription, ...]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return read_tools(found, server=server)
    raise ToolFailed(f"the tool server `{server}` lists its tools on more than {MAX_PAGES} pages")


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """The tools that a model is shown, by the name that it is shown."""

    by_name: Mapping[str, ToolDescription]

    @classmethod
    def of(cls, tools: Sequence[ToolDescription]) -> Offer:
        """Every tool under its own name; where two servers share one, under `server__name`."""
        names = [tool.name for tool in tools]
        return cls(
            by_name={
                (tool.name if names.count(tool.name) == 1 else _function_name(f"{tool.server}__{tool.name}")): tool
                for tool in tools
            }
        )

    def wire(self) -> list[dict[str, Any]]:
        """The `tools` member of a request in the shape of chat completions."""
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": tool.description,
                    "parameters": tool.input_schema or {"type": "object"},
                },
            }
            for name, tool in self.by_name.items()
        ]


def _function_name(text: str) -> str:
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "_-") else "_" for sign in text)[:64]
