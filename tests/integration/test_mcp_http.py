"""MCP servers over streamable HTTP behind a gateway, with the official client and an official server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from support.mcp_suite import serving
from support.served import Served, served
from support.shell import mcp_python

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
KEY = "upstream-key-0123456789"
MODES = ["legacy", "auto"]
every_mode = pytest.mark.parametrize("mode", MODES)


@dataclass(frozen=True, kw_only=True)
class Behind:
    """A gateway in front of a server, and what that server was asked."""

    gateway: Served
    direct: str
    file: Path

    @property
    def calls(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


@contextmanager
def serving_notes(file: Path) -> Iterator[str]:
    """The URL of a server, which writes to `file` what it was asked."""
    env = {**os.environ, "MCP_CALLS": str(file)}
    with serving([str(mcp_python()), str(SERVER), "http"], env=env, stderr=subprocess.DEVNULL) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def behind(tmp_path: Path) -> Iterator[Behind]:
    with serving_notes(tmp_path / "calls") as direct, serving_notes(tmp_path / "calls-other") as other:
        os.environ["TEST_MCP_KEY"] = KEY
        config = f"""
version: 1
limits: {{rate: unlimited}}
proxies:
  wait: 1s
  mcp:
    test: {{url: "{direct}", key: "${{env:TEST_MCP_KEY}}", private: true}}
    other: {{url: "{other}", private: true}}
    gone: {{url: "http://127.0.0.1:9/mcp", private: true}}
tools:
  "mcp:test/deploy": {{risk: high, irreversible: true}}
  "mcp:other/look_up": {{risk: critical}}
"""
        with served(tmp_path / "home", config) as gateway:
            yield Behind(gateway=gateway, direct=direct, file=tmp_path / "calls")


@asynccontextmanager
async def connected(
    place: Behind, mode: str = "legacy", *, key: str = "bot", server: str = "test", **more: Any
) -> AsyncIterator[Client]:
    url = f"http://127.0.0.1:{place.gateway.port}/mcp/{server}"
    headers = {"authorization": f"Bearer {place.gateway.credentials.text(key)}"}
    with anyio.fail_after(60):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode, **more) as client,
        ):
            yield client


def text(result: Any) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


@every_mode
async def test_everything_passes_and_calls_are_decided(tmp_path: Path, mode: str) -> None:
    steps: list[float] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    with behind(tmp_path) as place:
        async with connected(place, mode) as client:
            assert "add" in {tool.name for tool in (await client.list_tools()).tools}
            assert text(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
            await client.call_tool("slow", {"steps": 3}, progress_callback=told)
            assert steps == [1, 2, 3]
            assert (await client.call_tool("run_command", {"command": "rm -rf /"})).is_error
            injected = await client.call_tool("fetch", {"url": "https://example.com/page"})
            assert injected.is_error
            assert "evil.example" not in str(injected)
            assert "person has to approve" in text(await client.call_tool("deploy", {"to": "prod"}))
            with pytest.raises(MCPError, match="withheld"):
                await client.read_resource("notes://bad")
        assert [call for call in place.calls if "slow" not in call] == ["add 2 3", "fetch https://example.com/page"]


async def test_what_the_server_asks_the_client_passes(tmp_path: Path) -> None:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"colour": "blue"})

    with behind(tmp_path) as place:
        async with connected(place, elicitation_callback=answer) as client:
            assert "blue" in text(await client.call_tool("ask", {}))


async def test_a_rug_pull_is_refused(tmp_path: Path) -> None:
    with behind(tmp_path) as place:
        async with connected(place) as client:
            assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
            await client.call_tool("change", {})
            await client.list_tools()
            assert "tool_changed" in text(await client.call_tool("add", {"a": 1, "b": 1}))
        assert [call for call in place.calls if "add" in call] == ["add 1 1"]
        (alarm,) = place.gateway.ask("GET", "/v1/receipts?kind=alarm", key="auditor").json["items"]
        told = {name: alarm[name] for name in ("tool", "server", "reason", "agent")}
        assert told == {"tool": "add", "server": "mcp:test", "reason": "tool_changed", "agent": "bot"}


async def test_tools_of_one_name_are_two_tools_where_two_servers_have_them(tmp_path: Path) -> None:
    with behind(tmp_path) as place:
        async with connected(place) as test, connected(place, server="other") as other:
            assert [tool.name for tool in (await test.list_tools()).tools] == [
                tool.name for tool in (await other.list_tools()).tools
            ]
            # What one server's tool may do says nothing of the other's,
            assert text(await test.call_tool("look_up", {"word": "tree"})) == "tree: a word"
            refused = await other.call_tool("look_up", {"word": "tree"})
            assert refused.is_error
            # and what one server changes counts against its own tool alone.
            await other.call_tool("change", {})
            await other.list_tools()
            assert "tool_changed" in text(await other.call_tool("add", {"a": 1, "b": 1}))
            assert text(await test.call_tool("add", {"a": 1, "b": 1})) == "2"
        assert place.calls == ["look_up tree", "add 1 1"]
        assert not (tmp_path / "calls-other").exists()  # `change` notes nothing, and nothing else ran there


async def test_without_a_key_nothing_is_asked_and_a_server_that_is_gone_is_said(tmp_path: Path) -> None:
    with behind(tmp_path) as place:
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert place.gateway.ask("POST", "/mcp/test", body, key=None).status == 401
        assert place.gateway.ask("POST", "/mcp/test", body, key="auditor").status == 403
        page = place.gateway.ask("POST", "/mcp/test", body, headers={"origin": "http://evil.example"})
        assert (page.status, page.code) == (403, "cross_origin")
        assert place.gateway.ask("POST", "/mcp/nobody", body).status == 404
        assert place.gateway.ask("POST", "/mcp/gone", body).status == 502
        assert place.gateway.ask("POST", "/mcp/test", b'{"id": 1, "id": 2}').status == 422
        for answer in (place.gateway.ask("POST", "/mcp/test", body), place.gateway.ask("GET", "/mcp/test")):
            assert KEY.encode() not in answer.body
