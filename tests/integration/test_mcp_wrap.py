"""`aegis mcp wrap` between the official client and an official server: faithful, and in force."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from aegis.bootstrap import open_state
from aegis.bootstrap.credentials import create_key
from aegis.core.ports import Search
from support.deployments import deployment
from support.served import served
from support.shell import AEGIS, mcp_python, stand_in

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
CONFIG = """
version: 1
limits: {rate: unlimited}
tools:
  "mcp:test/deploy": {risk: high, irreversible: true}
  "mcp:test/change": {risk: low}
"""
MODES = ["legacy", "auto"]
every_mode = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    deployment(place, CONFIG).close()
    return place


def wrapping(home: Path) -> list[str]:
    return ["mcp", "wrap", "--name", "test", "--home", str(home), "--config", str(home / "aegis.yaml")]


def parameters(home: Path, *options: str, env: dict[str, str] | None = None) -> StdioServerParameters:
    calls = {"MCP_CALLS": str(home.parent / "calls"), "PYTHONPATH": str(SERVER.parents[1])}
    return StdioServerParameters(
        command=str(stand_in()),
        args=[*wrapping(home), *options, "--", str(mcp_python()), str(SERVER)],
        env={**os.environ, **calls, **(env or {})},
    )


def calls(home: Path) -> list[str]:
    file = home.parent / "calls"
    return file.read_text().splitlines() if file.exists() else []


@asynccontextmanager
async def connected(
    home: Path, *options: str, mode: str = "legacy", env: dict[str, str] | None = None, **more: Any
) -> AsyncIterator[Client]:
    with anyio.fail_after(60):
        async with Client(parameters(home, *options, env=env), mode=mode, **more) as client:
            yield client


def text(result: Any) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


@every_mode
async def test_everything_of_the_protocol_passes(home: Path, mode: str) -> None:
    steps: list[tuple[float, float | None, str | None]] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    async with connected(home, mode=mode) as client:
        listed = await client.list_tools()
        assert {"add", "look_up", "slow", "ask"} <= {tool.name for tool in listed.tools}
        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert (text(result), result.structured_content, result.is_error) == ("5", {"result": 5}, False)
        await client.call_tool("slow", {"steps": 3}, progress_callback=told)
        assert steps == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
        read = await client.read_resource("notes://one")
        assert read.contents[0].text == "the note one"  # type: ignore[union-attr]
        prompt = await client.get_prompt("greet", {"name": "Ann"})
        assert "Greet Ann." in str(prompt.messages[0].content)
        assert (await client.call_tool("add", {"a": "x", "b": 1})).is_error
        with pytest.raises(MCPError):
            await client.read_resource("nothing://here")
        assert client.instructions == "Use add to add."


async def test_what_the_server_asks_the_client_passes(home: Path) -> None:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"colour": "blue"})

    async def folders(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///srv/here"))])

    async with connected(home, elicitation_callback=answer, list_roots_callback=folders) as client:
        assert "blue" in text(await client.call_tool("ask", {}))
        assert text(await client.call_tool("roots", {})) == "file:///srv/here"


async def test_many_calls_at_the_same_time_are_matched_by_their_ids(home: Path) -> None:
    sums: dict[int, str] = {}
    async with connected(home) as client:

        async def one(number: int) -> None:
            sums[number] = text(await client.call_tool("add", {"a": number, "b": number}))

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(one, number)
    assert sums == {number: str(2 * number) for number in range(40)}


@every_mode
async def test_a_blocked_call_is_an_error_of_the_tool_that_the_server_never_sees(home: Path, mode: str) -> None:
    async with connected(home, mode=mode) as client:
        result = await client.call_tool("run_command", {"command": "git status && rm -rf /"})
        assert result.is_error
        assert "`run_command` was not run" in text(result)
        assert text(await client.call_tool("run_command", {"command": "ls"})) == "ran"
    assert calls(home) == ["run_command ls"]


@every_mode
async def test_an_injected_result_is_withheld_and_so_is_an_injected_resource(home: Path, mode: str) -> None:
    async with connected(home, mode=mode) as client:
        result = await client.call_tool("fetch", {"url": "https://example.com/page"})
        assert result.is_error
        assert "evil.example" not in str(result)
        with pytest.raises(MCPError, match="withheld"):
            await client.read_resource("notes://bad")


@every_mode
async def test_a_tool_that_gives_orders_to_the_model_is_not_shown_and_does_not_run(home: Path, mode: str) -> None:
    async with connected(home, mode=mode, env={"MCP_POISON": "1"}) as client:
        assert "look_up" not in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("look_up", {"word": "x"})).is_error
    assert calls(home) == []


async def test_a_rug_pull_inside_of_a_connection_is_refused(home: Path) -> None:
    async with connected(home) as client:
        assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
        assert text(await client.call_tool("change", {})) == "changed"
        result = await client.call_tool("add", {"a": 1, "b": 1})
        assert result.is_error
        assert "tool_changed" in text(result)
    assert calls(home) == ["add 1 1"]
    with closing(open_state(home / "aegis.yaml", home)) as state, state.store.reader() as reader:
        alarms = [(one.tool, one.reason) for one in reader.search(Search(kind="alarm"))]
    assert alarms == [("add", "tool_changed")]


async def test_a_rug_pull_between_connections_is_refused_until_the_change_is_accepted(home: Path) -> None:
    async with connected(home) as client:
        await client.list_tools()
    async with connected(home, env={"MCP_CHANGED": "1"}) as client:
        assert "add" not in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("add", {"a": 1, "b": 1})).is_error
        assert text(await client.call_tool("look_up", {"word": "x"})) == "x: a word"
    accept = ["tools", "pin", "--replace", "--server", "mcp:test", "--home", str(home)]
    server = ["env", "MCP_CHANGED=1", f"PYTHONPATH={SERVER.parents[1]}", str(mcp_python()), str(SERVER)]
    await anyio.run_process([str(stand_in()), *accept, "--", *server])
    async with connected(home, env={"MCP_CHANGED": "1"}) as client:
        assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"


async def test_only_pinned_tools_are_shown_where_that_is_asked_for(home: Path) -> None:
    async with connected(home, "--only-pinned") as client:
        assert (await client.list_tools()).tools == []
        assert (await client.call_tool("add", {"a": 1, "b": 1})).is_error
    assert calls(home) == []


async def test_the_server_gets_none_of_our_own_environment(home: Path) -> None:
    async with connected(home, env={"AEGIS_API_KEY": "aegis_x_y"}) as client:
        assert "AEGIS_API_KEY" not in text(await client.call_tool("environment", {}))


async def test_a_held_call_is_answered_by_the_person_at_the_client_who_holds_the_key(home: Path) -> None:
    state = open_state(home / "aegis.yaml", home)
    key = create_key(state, roles=["approver"], by="test", name="ann").text
    state.close()
    file = home.parent / "ann.key"
    file.write_text(key)
    asked: list[str] = []

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "approve" if len(asked) == 1 else "deny"})

    option = ("--approver-key-file", str(file))
    async with connected(home, *option, elicitation_callback=answer) as client:
        assert text(await client.call_tool("deploy", {"to": "prod"})) == "deployed to prod"
        refused = await client.call_tool("deploy", {"to": "moon"})
        assert "a person denied this call" in text(refused)
    assert '"prod"' in asked[0]
    assert calls(home) == ["deploy prod"]


async def test_a_held_call_that_nobody_answers_does_not_run(home: Path) -> None:
    async with connected(home, "--wait", "1") as client:
        result = await client.call_tool("deploy", {"to": "prod"})
        assert "a person has to approve it" in text(result)
    assert calls(home) == []


async def test_a_cancelled_call_that_is_still_being_decided_never_reaches_the_server(home: Path) -> None:
    async with connected(home) as client:
        with anyio.move_on_after(1.5) as scope:
            await client.call_tool("deploy", {"to": "prod"})
        assert scope.cancelled_caught
        assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
    assert calls(home) == ["add 1 1"]


async def test_over_a_gateway_the_same_is_in_force(tmp_path: Path) -> None:
    with served(tmp_path / "home", CONFIG) as gateway:
        url = ("--url", f"http://127.0.0.1:{gateway.port}")
        env = {"AEGIS_API_KEY": gateway.credentials.text("bot")}
        async with connected(tmp_path / "home", *url, env=env) as client:
            assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
            assert (await client.call_tool("run_command", {"command": "rm -rf /"})).is_error
        kinds = [item["kind"] for item in gateway.ask("GET", "/v1/receipts", key="auditor").json["items"]]
        assert kinds.count("result") == 1
    assert calls(tmp_path / "home") == ["add 1 1"]


class TestHostileLines:
    def spoken(self, home: Path, *lines: bytes, server: str) -> list[dict[str, Any]]:
        words = [str(stand_in()), *wrapping(home)]
        done = subprocess.run(
            [*words, "--", sys.executable, "-c", server], input=b"".join(lines), capture_output=True, timeout=60
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_what_two_parsers_could_read_differently_reaches_nobody(self, home: Path) -> None:
        call = b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"x"}}\n'
        (answer,) = self.spoken(home, call, server="import sys; sys.stdin.read()")
        assert answer["error"]["code"] == -32700

    @pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
    def test_a_batch_is_judged_message_by_message_where_the_version_has_batches(self, home: Path, version: str) -> None:
        call = {"name": "run_command", "arguments": {"command": "rm -rf /"}}
        batch = [
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
        ]
        server = (
            "import json, sys\n"
            "for line in sys.stdin:\n"
            "    message = json.loads(line)\n"
            f"    result = {{'seen': message['method'], 'protocolVersion': '{version}'}}\n"
            "    print(json.dumps({'jsonrpc': '2.0', 'id': message['id'], 'result': result}), flush=True)\n"
        )
        words = [str(stand_in()), *wrapping(home)]
        with subprocess.Popen(
            [*words, "--", sys.executable, "-c", server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as wrapped:
            assert wrapped.stdin is not None
            assert wrapped.stdout is not None
            greeting = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
            print(json.dumps(greeting), file=wrapped.stdin, flush=True)
            assert json.loads(wrapped.stdout.readline())["result"]["protocolVersion"] == version
            print(json.dumps(batch), file=wrapped.stdin, flush=True)
            wrapped.stdin.close()
            answers = {one["id"]: one for one in map(json.loads, wrapped.stdout)}
        if version == "2025-06-18":
            assert answers[None]["error"]["code"] == -32600
            assert answers.keys() == {None}
        else:
            assert answers[1]["result"]["seen"] == "ping"
            assert answers[2]["result"]["isError"] is True

    def test_a_server_that_is_not_there_is_said_in_one_line(self, home: Path) -> None:
        words = [str(stand_in()), "mcp", "wrap", "--home", str(home), "--", "/nowhere/server"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert "cannot be started" in done.stderr


class TestInstalling:
    def test_servers_are_wrapped_and_put_back(self, tmp_path: Path) -> None:
        env = {**os.environ, "HOME": str(tmp_path)}
        path = tmp_path / ".cursor" / "mcp.json"
        path.parent.mkdir()
        own = {
            "mcpServers": {
                "files": {"command": "npx", "args": ["-y", "server-filesystem", "/x"], "env": {"A": "b"}},
                "bare": {"command": "server"},
                "remote": {"type": "sse", "url": "https://example.com/sse"},
            },
            "other": [1],
        }
        path.write_text(json.dumps(own))

        def run(*words: str) -> Any:
            done = subprocess.run([stand_in(), "mcp", *words, "--json"], env=env, capture_output=True, text=True)
            return done.returncode, json.loads(done.stdout)

        code, said = run("install", "cursor")
        assert (code, said["changed"], said["left"]) == (1, ["files", "bare"], ["remote"])
        assert json.loads(Path(said["backup"]).read_text()) == own
        value = json.loads(path.read_text())
        entry = value["mcpServers"]["files"]
        assert entry["command"] == str(AEGIS)
        assert entry["args"][-5:] == ["--", "npx", "-y", "server-filesystem", "/x"]
        assert entry["env"] == {"A": "b"}
        assert value["mcpServers"]["remote"] == own["mcpServers"]["remote"]  # type: ignore[index]
        assert run("install", "cursor")[1]["changed"] == []
        assert run("uninstall", "cursor")[0] == 0
        back = json.loads(path.read_text())
        assert back["mcpServers"]["files"] == own["mcpServers"]["files"]  # type: ignore[index]
        assert back["other"] == [1]

    def test_an_installed_line_runs(self, home: Path) -> None:
        project = home.parent / "project"
        (project / ".cursor").mkdir(parents=True)
        path = project / ".cursor" / "mcp.json"
        path.write_text(json.dumps({"mcpServers": {"test": {"command": sys.executable, "args": [str(SERVER)]}}}))
        words = ["mcp", "install", "cursor", "--project", str(project), "--home", str(home)]
        words += ["--config", str(home / "aegis.yaml")]
        subprocess.run([stand_in(), *words], check=True, capture_output=True)
        entry = json.loads(path.read_text())["mcpServers"]["test"]

        async def use() -> str:
            server = StdioServerParameters(
                command=entry["command"], args=entry["args"], env={**os.environ, "PYTHONPATH": str(SERVER.parents[1])}
            )
            async with Client(server, mode="legacy") as client:
                return text(await client.call_tool("add", {"a": 1, "b": 2}))

        assert anyio.run(use) == "3"
