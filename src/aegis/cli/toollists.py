"""Where `aegis tools` gets lists of tools from: a file, standard input, or an MCP server that it starts and asks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.core.tool_description import ToolDescription

MAX_BYTES: Final = 16 * 1024 * 1024
ASK_SECONDS: Final = 60.0  # a server that is started by a package manager may have to be fetched first
MAX_PAGES: Final = 1_000


def read_list(source: str | None, command: Sequence[str], *, server: str | None) -> tuple[ToolDescription, ...]:
    """The tools that the file `source` (`-`: standard input) lists, or that the MCP server `command` announces."""
    from aegis.wire.tool_lists import read_tools

    if bool(source) == bool(command):
        raise InvalidCall(
            "give one list of tools", code="usage", hint="`aegis tools scan FILE`, or `aegis tools scan -- COMMAND`"
        )
    document = asyncio.run(_ask(command)) if command else _parse(source or "")
    return read_tools(document, server=server)


def _parse(source: str) -> Any:
    from aegis.core.json import parse

    data = sys.stdin.buffer.read(MAX_BYTES + 1) if source == "-" else _bytes(Path(source))
    if len(data) > MAX_BYTES:
        raise InvalidCall(f"the list of tools is longer than {MAX_BYTES} bytes")
    return parse(data)


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidCall(f"`{path}` cannot be read: {error.strerror}", code="not_found") from error


async def _ask(command: Sequence[str]) -> list[dict[str, Any]]:
    try:
        from mcp import Client, MCPError, StdioServerParameters
    except ImportError as error:
        raise InvalidCall("asking a server needs the package `mcp`", hint="install `aegis-guard[mcp]`") from error
    parameters = StdioServerParameters(command=command[0], args=list(command[1:]))
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    try:
        async with asyncio.timeout(ASK_SECONDS), Client(parameters, read_timeout_seconds=ASK_SECONDS) as client:
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    return tools
    except (OSError, TimeoutError, MCPError, ExceptionGroup) as error:
        raise InvalidCall(
            f"the server `{command[0]}` did not list its tools: {type(error).__name__}", code="unavailable"
        ) from error
    raise InvalidCall(f"the server `{command[0]}` lists its tools on more than {MAX_PAGES} pages")
