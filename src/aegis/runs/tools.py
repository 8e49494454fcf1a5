"""Servers whose tools runs use: MCP servers of the configuration, and those of installed packages."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from mcp import Client, MCPError, StdioServerParameters

from aegis.config.models import ToolServerSettings
from aegis.core.canonical import canonical
from aegis.core.tool_description import ToolDescription
from aegis.errors import AegisError, InvalidCall
from aegis.wire.tool_lists import read_tools

_log = logging.getLogger("aegis.runs")

GROUP: Final = "aegis.run_tools"
START_SECONDS: Final = 60.0  # a package manager may have to fetch the server first
MAX_PAGES: Final = 1_000


class ToolFailed(AegisError):
    """A tool's server is gone, slow, or does not speak the protocol; whether the tool acted is not known."""


class ToolServer(Protocol):
    """Tools that runs may use. Whatever `call` raises means that there is no result, and that nobody knows what was
    done."""

    async def tools(self) -> Sequence[ToolDescription]: ...

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> Any:
        """The tool's result as JSON, within `seconds`."""
        ...

    async def aclose(self) -> None: ...


class ToolServers:
    """The servers by name. Used from one event loop; `aclose` ends every one."""

    def __init__(self, servers: Mapping[str, ToolServer]) -> None:
        self._servers = servers

    async def tools(self, server: str) -> tuple[ToolDescription, ...]:
        """What the server announces, under the server's name. Raises `ToolFailed`."""
        try:
            async with asyncio.timeout(START_SECONDS):
                found = await self._servers[server].tools()
            return tuple(replace(tool, server=server) for tool in found)
        except ToolFailed:
            raise
        except Exception as error:
            raise ToolFailed(f"the tool server `{server}` did not start: {type(error).__name__}") from error

    async def call(self, server: str, tool: str, arguments: dict[str, Any], seconds: float) -> Any:
        """The tool's result as JSON. Raises `ToolFailed`."""
        try:
            async with asyncio.timeout(seconds):
                result = await self._servers[server].call(tool, arguments, seconds)
            canonical(result)
        except ToolFailed:
            raise
        except Exception as error:
            raise ToolFailed(f"the tool `{tool}` of `{server}` gave no result: {type(error).__name__}") from error
        return result

    async def aclose(self) -> None:
        """Ends every server, whatever one of them does."""
        ends = await asyncio.gather(*(server.aclose() for server in self._servers.values()), return_exceptions=True)
        for name, end in zip(self._servers, ends, strict=True):
            if isinstance(end, Exception):
                _log.error("a tool server did not end", extra={"server": name, "error": type(end).__name__})


_Started = tuple[Client, tuple[ToolDescription, ...], asyncio.Event]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Session:
    client: Client
    stop: asyncio.Event
    owner: asyncio.Task[None]
    tools: tuple[ToolDescription, ...]


class StdioServer:
    """An MCP server over its standard input and output: started at the first need, again when it died."""

    def __init__(self, name: str, settings: ToolServerSettings) -> None:
        self._name = name
        self._settings = settings
        self._session: _Session | None = None
        self._starting = asyncio.Lock()

    async def tools(self) -> tuple[ToolDescription, ...]:
        """What the server announces. Raises `ToolFailed`."""
        return (await self._ready()).tools

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> Any:
        """The tool's structured content, or its content blocks. Raises what the protocol's client raises."""
        session = await self._ready()
        try:
            async with asyncio.timeout(seconds):
                result = await session.client.call_tool(tool, arguments)
        finally:
            if session.owner.done() and self._session is session:
                self._session = None
        answer = result.model_dump(by_alias=True, exclude_none=True, mode="json")
        content = answer.get("structuredContent", answer.get("content", []))
        return {"error": content} if answer.get("isError") else content

    async def aclose(self) -> None:
        """Ends the session and its program."""
        session, self._session = self._session, None
        if session is not None:
            session.stop.set()
            await asyncio.gather(session.owner, return_exceptions=True)

    async def _ready(self) -> _Session:
        async with self._starting:
            if self._session is not None and not self._session.owner.done():
                return self._session
            ready: asyncio.Future[_Started] = asyncio.get_running_loop().create_future()
            owner = asyncio.create_task(self._own(ready))
            try:
                async with asyncio.timeout(START_SECONDS):
                    client, tools, stop = await asyncio.shield(ready)
            except (TimeoutError, ToolFailed):
                owner.cancel()
                raise ToolFailed(f"the tool server `{self._name}` did not start") from None
            self._session = _Session(client=client, stop=stop, owner=owner, tools=tools)
            return self._session

    async def _own(self, ready: asyncio.Future[_Started]) -> None:
        """The task that a session lives in: the protocol's client is entered and left by one task."""
        settings, stop = self._settings, asyncio.Event()
        handed = {name: os.environ[name] for name in ("PATH", *settings.environment) if name in os.environ}
        parameters = StdioServerParameters(command=settings.command[0], args=settings.command[1:], env=handed)
        try:
            async with Client(parameters) as client:
                ready.set_result((client, await _list(client, self._name), stop))
                await stop.wait()
        except (OSError, MCPError, InvalidCall, ToolFailed, ExceptionGroup) as error:
            if not ready.done():
                ready.set_exception(ToolFailed(f"`{self._name}` did not start: {type(error).__name__}"))


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
