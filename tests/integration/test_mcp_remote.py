"""`aegis mcp wrap --upstream`: a server over HTTP, behind standard streams; and the clients whose servers are URLs."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from support.deployments import deployment
from support.mcp_suite import against_client, everything, needs_suite
from support.mcp_web import Web, web
from support.shell import AEGIS, mcp_python, stand_in

CLIENT = Path(__file__).parents[1] / "support" / "mcp_suite_client.py"
CONFIG = """
version: 1
limits: {rate: unlimited}
tools:
  "mcp:test/deploy": {risk: high, irreversible: true}
"""
every_mode = pytest.mark.parametrize("mode", ["legacy", "auto"])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    deployment(place, CONFIG).close()
    return place


@asynccontextmanager
async def connected(home: Path, url: str, *options: str, mode: str = "legacy", **more: Any) -> AsyncIterator[Client]:
    words = ["mcp", "wrap", "--name", "test", "--home", str(home), "--config", str(home / "aegis.yaml"), *options]
    env = {**os.environ, **more.pop("env", {})}
    server = StdioServerParameters(command=str(stand_in()), args=[*words, "--upstream", url], env=env)
    with anyio.fail_after(90):
        async with Client(server, mode=mode, **more) as client:
            yield client


def text(result: Any) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


@every_mode
async def test_everything_passes_and_calls_are_decided(tmp_path: Path, home: Path, mode: str) -> None:
    steps: list[float] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    with web(tmp_path) as server:
        async with connected(home, server.url, "--wait", "1", mode=mode) as client:
            assert "add" in {tool.name for tool in (await client.list_tools()).tools}
            assert text(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
            await client.call_tool("slow", {"steps": 3}, progress_callback=told)
            assert steps == [1, 2, 3]
            assert (await client.call_tool("run_command", {"command": "rm -rf /"})).is_error
            assert "evil.example" not in str(await client.call_tool("fetch", {"url": "https://example.com/page"}))
            assert "person has to approve" in text(await client.call_tool("deploy", {"to": "prod"}))
            with pytest.raises(MCPError, match="withheld"):
                await client.read_resource("notes://bad")
        assert [call for call in server.calls if "slow" not in call] == ["add 2 3", "fetch https://example.com/page"]


async def test_what_the_server_asks_the_client_passes(tmp_path: Path, home: Path) -> None:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"colour": "blue"})

    async def folders(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///srv/here"))])

    with web(tmp_path) as server:
        options: dict[str, Any] = {"elicitation_callback": answer, "list_roots_callback": folders}
        async with connected(home, server.url, **options) as client:
            assert "blue" in text(await client.call_tool("ask", {}))
            assert text(await client.call_tool("roots", {})) == "file:///srv/here"


async def test_a_stream_that_ends_before_the_answer_is_taken_up_by_its_last_event(home: Path) -> None:
    with everything() as url:
        async with connected(home, url) as client:
            assert text(await client.call_tool("test_reconnection", {})) == "told after the break"


async def test_credentials_go_to_the_server_alone_and_stand_in_no_list_of_processes(tmp_path: Path, home: Path) -> None:
    env = {"MAIL_TOKEN": "secret-token", "TENANT": "seven"}
    with web(tmp_path, token="secret-token") as server:
        options = ("--bearer", "MAIL_TOKEN", "--header", "x-tenant=TENANT")
        async with connected(home, server.url, *options, env=env) as client:
            assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
        assert "tenant seven" in server.calls
        with pytest.RaisesGroup(pytest.RaisesExc(MCPError, match="credential"), flatten_subgroups=True):
            async with connected(home, server.url) as client:
                await client.list_tools()


async def test_a_server_that_is_gone_is_an_error_of_the_request(home: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(MCPError, match="cannot be spoken to"), flatten_subgroups=True):
        async with connected(home, "http://127.0.0.1:9/mcp") as client:
            await client.list_tools()


@needs_suite
@pytest.mark.parametrize("scenario", ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"])
def test_the_suite_for_clients_says_the_same_through_the_wrapped_connection(
    home: Path, tmp_path: Path, scenario: str
) -> None:
    command = f"{mcp_python()} {CLIENT}"
    direct = against_client(scenario, command, tmp_path / "direct")
    wrapped = f"{command} {stand_in()} mcp wrap --home {home} --config {home / 'aegis.yaml'} --upstream"
    through = against_client(scenario, wrapped, tmp_path / "through")
    # When a client comes back, to the millisecond, depends on the machine.
    timed = ("client-sse-retry-timing",)
    kept = [{name: status for name, status in one[scenario] if name not in timed} for one in (direct, through)]
    assert kept[0] == kept[1]
    assert set(kept[0].values()) == {"SUCCESS"}


class TestInstalling:
    def run(self, home: Path, *words: str) -> tuple[int, Any]:
        env = {**os.environ, "HOME": str(home)}
        done = subprocess.run([stand_in(), "mcp", *words, "--json"], env=env, capture_output=True, text=True)
        return done.returncode, json.loads(done.stdout)

    @pytest.mark.parametrize(
        ("client", "file", "member", "own"),
        [
            ("cursor", ".cursor/mcp.json", "mcpServers", {"url": "https://a.example/mcp", "headers": {"X-Key": "k"}}),
            (
                "claude-code",
                ".claude.json",
                "mcpServers",
                {"type": "http", "url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
            ),
            ("vscode", ".config/Code/User/mcp.json", "servers", {"type": "http", "url": "https://a.example/mcp"}),
            ("windsurf", ".codeium/windsurf/mcp_config.json", "mcpServers", {"serverUrl": "https://a.example/mcp"}),
            ("gemini", ".gemini/settings.json", "mcpServers", {"httpUrl": "https://a.example/mcp", "trust": True}),
        ],
    )
    def test_servers_that_are_urls_are_wrapped_and_put_back(
        self, tmp_path: Path, client: str, file: str, member: str, own: dict[str, Any]
    ) -> None:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        older = {"url": "https://a.example/sse", "type": "sse"}
        value = {member: {"mail": own, "older": older}, "theme": "dark"}
        path.write_text(json.dumps(value))
        code, said = self.run(tmp_path, "install", client)
        assert (code, said["changed"], said["left"]) == (1, ["mail"], ["older"])
        entry = json.loads(path.read_text())[member]["mail"]
        assert entry["command"] == str(AEGIS)
        assert entry["args"][entry["args"].index("--upstream") + 1] == "https://a.example/mcp"
        for header in own.get("headers", {}).values():
            assert header not in " ".join(entry["args"])
            assert header in entry["env"].values()
        assert entry.get("trust") == own.get("trust")
        assert self.run(tmp_path, "install", client)[1]["changed"] == []
        assert self.run(tmp_path, "uninstall", client)[0] == 0
        assert json.loads(path.read_text()) == value

    def test_servers_of_codex_are_wrapped_and_put_back_and_the_rest_of_its_file_stays(self, tmp_path: Path) -> None:
        path = tmp_path / ".codex" / "config.toml"
        path.parent.mkdir()
        own = """# my settings
model = "gpt-5"   # the good one

[mcp_servers.files]
command = "npx"
args = ["-y", "server-filesystem", "/x"]
# slow machine
startup_timeout_sec = 20

[mcp_servers.files.env]
A = "b \\u007f \\"q\\""

[mcp_servers."my mail"]
url = "https://a.example/mcp"
bearer_token_env_var = "MAIL_TOKEN"
http_headers = { "X-Tenant" = "seven" }
enabled_tools = ["send"]

[profiles.fast]
model = "small"
"""
        path.write_text(own)
        code, said = self.run(tmp_path, "install", "codex")
        assert (code, said["changed"]) == (0, ["files", "my mail"])
        assert Path(said["backup"]).read_text() == own
        text = path.read_text()
        servers = tomllib.loads(text)["mcp_servers"]
        assert servers["files"]["args"][-4:] == ["npx", "-y", "server-filesystem", "/x"]
        assert servers["files"]["env"] == {"A": 'b \x7f "q"'}
        mail = servers["my mail"]
        assert mail["args"][mail["args"].index("--bearer") + 1] == "MAIL_TOKEN"
        assert (mail["env_vars"], mail["env"], mail["enabled_tools"]) == (
            ["MAIL_TOKEN"],
            {"MCP_HEADER_1": "seven"},
            ["send"],
        )
        assert 'model = "gpt-5"   # the good one' in text
        assert "# slow machine" in text
        assert self.run(tmp_path, "install", "codex")[1]["changed"] == []
        assert self.run(tmp_path, "uninstall", "codex")[0] == 0
        assert tomllib.loads(path.read_text()) == tomllib.loads(own)

    @pytest.mark.parametrize(
        "own",
        [
            'mcp_servers = { files = { command = "npx" } }\n',
            '[mcp_servers]\nfiles.command = "npx"\n',
            '[mcp_servers.files]\ncommand = "npx"\nargs = [\n["nested"]\n]\n',
            "not toml",
        ],
    )
    def test_a_file_that_cannot_be_changed_safely_is_left_alone(self, tmp_path: Path, own: str) -> None:
        path = tmp_path / ".codex" / "config.toml"
        path.parent.mkdir()
        path.write_text(own)
        env = {**os.environ, "HOME": str(tmp_path)}
        done = subprocess.run([stand_in(), "mcp", "install", "codex"], env=env, capture_output=True, text=True)
        assert done.returncode == 2
        assert path.read_text() == own
        assert list(path.parent.iterdir()) == [path]

    def test_a_server_that_the_client_signs_in_to_is_left_and_named(self, tmp_path: Path) -> None:
        path = tmp_path / ".cursor" / "mcp.json"
        path.parent.mkdir()
        own = {"mcpServers": {"mail": {"url": "https://a.example/mcp", "auth": {"CLIENT_ID": "x"}}}}
        path.write_text(json.dumps(own))
        code, said = self.run(tmp_path, "install", "cursor")
        assert (code, said["changed"], said["left"]) == (1, [], ["mail"])

    async def test_an_installed_line_of_a_url_runs(self, tmp_path: Path, home: Path) -> None:
        project = tmp_path / "project"
        (project / ".cursor").mkdir(parents=True)
        path = project / ".cursor" / "mcp.json"
        server: Web
        with web(tmp_path, token="secret-token") as server:
            own = {"url": server.url, "headers": {"Authorization": "Bearer secret-token"}}
            path.write_text(json.dumps({"mcpServers": {"test": own}}))
            words = ["mcp", "install", "cursor", "--project", str(project), "--home", str(home)]
            await anyio.run_process([str(stand_in()), *words, "--config", str(home / "aegis.yaml")])
            entry = json.loads(path.read_text())["mcpServers"]["test"]
            line = StdioServerParameters(
                command=entry["command"], args=entry["args"], env={**os.environ, **entry["env"]}
            )
            with anyio.fail_after(90):
                async with Client(line, mode="legacy") as client:
                    assert text(await client.call_tool("add", {"a": 2, "b": 2})) == "4"
