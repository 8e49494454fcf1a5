"""The client that the conformance suite tests: the official one, at the suite's URL or behind the command given.

mcp_suite_client.py [COMMAND ...] URL
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


async def filled(context: Any, params: Any) -> types.ElicitResult:
    """Accept with what the form proposes."""
    fields = params.requested_schema["properties"]
    return types.ElicitResult(action="accept", content={name: one["default"] for name, one in fields.items()})


async def main(*command: str, url: str) -> None:
    behind = (
        StdioServerParameters(command=command[0], args=[*command[1:], url], env=dict(os.environ)) if command else None
    )
    server: Any = behind or streamable_http_client(url)
    async with Client(server, mode="legacy", elicitation_callback=filled) as client:
        for tool in (await client.list_tools()).tools:
            await client.call_tool(tool.name, {"a": 2, "b": 3} if tool.name == "add_numbers" else {})


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[1:-1], url=sys.argv[-1]))
