"""What `aegis run` tells each host: its documented variables, options and files, and nothing of the user's own."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from aegis.cli.running.boxed import fenced, seatbelt
from aegis.cli.running.hosts import Around, tell
from aegis.errors import InvalidCall

KEY = "aegis_0123_secret"
URL = "http://127.0.0.1:4711"


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Around:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    return Around(
        folder=tmp_path,
        home=tmp_path / "home",
        agent="bot",
        port=4711,
        socket="/run/x/aegis.sock",
        hooks="/run/x/hook.sock",
        config=None,
        key=KEY,
        dialects=("openai", "anthropic", "gemini", "ollama", "bedrock"),
    )


def options(words: Sequence[str]) -> dict[str, Any]:
    """The values that `-c KEY=TOML` gives on a command line."""
    given = [after for word, after in pairwise(words) if word == "-c"]
    return {name: tomllib.loads(f"v = {value}")["v"] for name, _, value in (one.partition("=") for one in given)}


def asks(command: str) -> None:
    words = shlex.split(command)
    assert words[words.index("--door") + 1] == "/run/x/hook.sock"
    assert KEY not in command


class TestModels:
    def test_every_api_is_named_by_the_variables_of_its_clients(self, around: Around) -> None:
        told = tell(["some-program", "x"], {"OPENAI_API_KEY": "sk-own", "NO_PROXY": "a.example"}, around).environment
        assert told["OPENAI_BASE_URL"] == told["OPENAI_API_BASE"] == f"{URL}/v1"
        assert told["ANTHROPIC_BASE_URL"] == told["GOOGLE_GEMINI_BASE_URL"] == told["OLLAMA_HOST"] == URL
        assert told["AWS_ENDPOINT_URL_BEDROCK_RUNTIME"] == URL
        assert {told[name] for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")} == {KEY}
        assert told["NO_PROXY"] == "a.example,127.0.0.1,localhost"

    def test_what_the_gateway_does_not_serve_stays_as_it_was(self, around: Around) -> None:
        told = tell(["some-program"], {"OPENAI_API_KEY": "sk-own"}, replace(around, dialects=())).environment
        assert told["OPENAI_API_KEY"] == "sk-own"
        assert "OPENAI_BASE_URL" not in told


class TestHosts:
    def test_claude_code_gets_a_settings_file_of_this_run(self, around: Around) -> None:
        told = tell(["/opt/claude", "-p", "hello"], {}, around)
        assert told.command[:1] + told.command[3:] == ["/opt/claude", "-p", "hello"]
        settings = json.loads(Path(told.command[2]).read_text())
        for event in ("PreToolUse", "PostToolUse", "UserPromptSubmit"):
            asks(settings["hooks"][event][0]["hooks"][0]["command"])
        assert settings["disableAllHooks"] is False
        assert told.environment["ANTHROPIC_AUTH_TOKEN"] == KEY
        assert "ANTHROPIC_API_KEY" not in told.environment
        with pytest.raises(InvalidCall, match="--settings"):
            tell(["claude", "--settings", "mine.json"], {}, around)

    def test_codex_gets_hooks_and_a_provider_on_its_command_line(self, around: Around) -> None:
        told = tell(["codex", "exec", "hello"], {}, around)
        assert told.command[-2:] == ["exec", "hello"]
        given = options(told.command)
        asks(given["hooks.PreToolUse"][0]["hooks"][0]["command"])
        assert given["model_provider"] == "aegis"
        assert given["model_providers.aegis.base_url"] == f"{URL}/v1"
        assert KEY not in " ".join(told.command)

    def test_gemini_gets_a_home_of_this_run_with_the_user_s_files_and_ours(
        self, around: Around, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = tmp_path / "user" / ".gemini"
        own.mkdir(parents=True)
        (own / "settings.json").write_text('{"ui": {"theme": "x"}, "hooks": {"BeforeTool": [{"matcher": "own"}]}}')
        (own / "oauth_creds.json").write_text("{}")
        told = tell(["gemini"], {"GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(tmp_path / "none.json")}, around)
        place = Path(told.environment["GEMINI_CLI_HOME"]) / ".gemini"
        assert (place / "oauth_creds.json").resolve() == own / "oauth_creds.json"
        settings = json.loads((place / "settings.json").read_text())
        assert settings["ui"] == {"theme": "x"}
        theirs, ours = settings["hooks"]["BeforeTool"]
        assert theirs == {"matcher": "own"}
        asks(ours["hooks"][0]["command"])
        assert settings["hooksConfig"]["enabled"] is True
        assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
        assert "aegis" not in (own / "settings.json").read_text()
        project = tmp_path / "project" / ".gemini"
        project.mkdir(parents=True)
        (project / "settings.json").write_text('{"hooksConfig": {"enabled": false}}')
        monkeypatch.chdir(project.parent)
        with pytest.raises(InvalidCall, match="switches off the hooks"):
            tell(["gemini"], {"GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(tmp_path / "none.json")}, around)

    def test_opencode_gets_a_plugin_and_providers_over_its_own_configuration(self, around: Around) -> None:
        own = {"theme": "x", "plugin": ["mine"], "provider": {"openai": {"models": {}}}}
        told = tell(["opencode"], {"OPENCODE_CONFIG_CONTENT": json.dumps(own)}, around)
        content = json.loads(told.environment["OPENCODE_CONFIG_CONTENT"])
        assert content["theme"] == "x"
        assert content["plugin"][0] == "mine"
        assert content["plugin"][1].endswith("opencode.js")
        assert content["provider"]["openai"] == {"models": {}, "options": {"baseURL": f"{URL}/v1", "apiKey": KEY}}
        asks(shlex.join(json.loads(told.environment["AEGIS_HOOK_COMMAND"])))

    def test_cursor_needs_its_hook_installed(self, around: Around, tmp_path: Path) -> None:
        with pytest.raises(InvalidCall, match="no hooks for one run"):
            tell(["cursor-agent"], {}, around)
        settings = tmp_path / ".cursor" / "hooks.json"
        settings.parent.mkdir()
        settings.write_text(
            '{"version": 1, "hooks": {"preToolUse": [{"command": "aegis hook || exit 2 # aegis-hook"}]}}'
        )
        assert tell(["cursor-agent"], {}, around).command == ["cursor-agent"]

    @pytest.mark.parametrize("name", ["goose", "aider"])
    def test_hosts_that_are_decided_by_their_models_need_one(self, name: str, around: Around) -> None:
        told = tell([name], {}, around)
        assert told.environment["ANTHROPIC_HOST"] == told.environment["OPENAI_HOST"] == URL
        assert bool(told.undecided) is (name == "aider")  # which offers its models no tools
        with pytest.raises(InvalidCall, match="none is known"):
            tell([name], {}, replace(around, dialects=()))


SERVER = {"command": "uvx", "args": ["calc"], "env": {"TOKEN": "t"}}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def behind(words: Sequence[str], name: str = "calc") -> None:
    """Show that a server's words are those of our proxy, and then its own."""
    at = words.index("--name")
    assert words[at : at + 5] == ["--name", name, "--", "uvx", "calc"]
    assert words[words.index("--url") + 1] == "unix:///run/x/aegis.sock"
    key = Path(words[words.index("--api-key-file") + 1])
    assert key.read_text() == KEY
    assert key.stat().st_mode & 0o777 == 0o600
    assert KEY not in " ".join(words)


class TestServers:
    """Every host finds its MCP servers behind our proxy, and its own files as they were."""

    def test_claude_code_gets_those_of_the_user_and_those_of_the_project_that_the_user_agreed_to(
        self, around: Around, tmp_path: Path
    ) -> None:
        far = {"type": "http", "url": "https://mcp.example.com/mcp"}
        keyed = {**far, "headers": {"Authorization": "Bearer ${TOKEN}"}}
        here = {str(tmp_path): {"mcpServers": {"local": SERVER}}}
        user = {"mcpServers": {"calc": SERVER, "far": far, "keyed": keyed}, "projects": here}
        write(tmp_path / "user" / ".claude.json", json.dumps(user))
        write(tmp_path / ".mcp.json", json.dumps({"mcpServers": {"shared": SERVER, "stranger": SERVER}}))
        write(tmp_path / ".claude" / "settings.local.json", json.dumps({"enabledMcpjsonServers": ["shared"]}))
        mine = tmp_path / "mine.json"
        mine.write_text(json.dumps({"mcpServers": {"calc": SERVER}}))
        told = tell(["claude", "--mcp-config", str(mine), "-p", "hello"], {}, around)
        assert told.command[1] == "--mcp-config"
        servers = json.loads(Path(told.command[2]).read_text())["mcpServers"]
        assert servers.keys() == {"calc", "keyed", "shared", "local"}
        for name in ("calc", "shared", "local"):
            behind(servers[name]["args"], name)
            assert servers[name]["env"] == SERVER["env"]
        assert servers["keyed"]["env"] == {"MCP_HEADER_1": "Bearer ${TOKEN}"}
        assert told.alone == ["far"]
        own = told.command[told.command.index("--mcp-config", 3) + 1]
        behind(json.loads(Path(own).read_text())["mcpServers"]["calc"]["args"])
        assert json.loads(mine.read_text()) == {"mcpServers": {"calc": SERVER}}
        strict = tell(["claude", "--strict-mcp-config", f"--mcp-config={mine}"], {}, around)
        assert [word for word in strict.command if word.startswith("--mcp-config")] == [strict.command[-1]]
        assert str(around.folder / "claude-mcp-0.json") in strict.command[-1]

    def test_codex_gets_those_of_the_user_and_of_projects_that_the_user_trusts(
        self, around: Around, tmp_path: Path
    ) -> None:
        calc = 'command = "uvx"\nargs = ["calc"]\n'
        write(tmp_path / ".codex" / "config.toml", f"[mcp_servers.shared]\n{calc}")
        user = tmp_path / "user" / ".codex" / "config.toml"
        write(user, f'[mcp_servers.calc]\n{calc}[mcp_servers.far]\nurl = "https://mcp.example.com/mcp"\n')
        told = tell(["codex"], {}, around)
        given = options(told.command)
        behind([given["mcp_servers.calc.command"], *given["mcp_servers.calc.args"]])
        assert told.alone == ["far"]
        assert "mcp_servers.shared.args" not in given
        write(user, f'[projects."{tmp_path}"]\ntrust_level = "trusted"\n')
        behind(options(tell(["codex"], {}, around).command)["mcp_servers.shared.args"], "shared")

    def test_gemini_gets_those_of_the_user_in_its_settings_of_this_run(self, around: Around, tmp_path: Path) -> None:
        servers = {"calc": SERVER, "shared": SERVER}
        write(tmp_path / "user" / ".gemini" / "settings.json", json.dumps({"mcpServers": servers}))
        write(tmp_path / ".gemini" / "settings.json", json.dumps({"mcpServers": {"shared": SERVER}}))
        told = tell(["gemini"], {"GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(tmp_path / "none.json")}, around)
        settings = json.loads((Path(told.environment["GEMINI_CLI_HOME"]) / ".gemini" / "settings.json").read_text())
        behind(settings["mcpServers"]["calc"]["args"])
        assert told.alone == ["shared"]

    def test_opencode_gets_those_of_all_its_files_over_them(self, around: Around, tmp_path: Path) -> None:
        local = json.dumps({"type": "local", "command": ["uvx", "calc"], "environment": {"TOKEN": "//t"}})
        user = (
            f'{{ // mine\n "mcp": {{ "calc": {local}, /* off */ "far": {{"type": "remote", "url": "https://x"}},}},}}'
        )
        write(tmp_path / "user" / ".config" / "opencode" / "opencode.jsonc", user)
        write(tmp_path / "opencode.json", json.dumps({"mcp": {"shared": json.loads(local)}}))
        told = tell(["opencode"], {}, around)
        servers = json.loads(told.environment["OPENCODE_CONFIG_CONTENT"])["mcp"]
        assert servers.keys() == {"calc", "shared"}
        behind(servers["calc"]["command"])
        assert sorted(json.loads(told.environment["AEGIS_HOOK_SERVERS"])) == ["calc", "far", "shared"]
        assert told.alone == ["far"]

    def test_goose_gets_a_root_of_this_run_with_its_own_files_by_links(self, around: Around, tmp_path: Path) -> None:
        place = tmp_path / "user" / ".config" / "goose"
        calc = "{type: stdio, name: calc, cmd: uvx, args: [calc], enabled: true}"
        write(place / "config.yaml", f"GOOSE_MODEL: m\nextensions:\n  calc: {calc}\n  developer: {{type: builtin}}\n")
        write(place / "secrets.yaml", "a: b\n")
        told = tell(["goose"], {}, around)
        root = Path(told.environment["GOOSE_PATH_ROOT"])
        assert (root / "config" / "secrets.yaml").resolve() == place / "secrets.yaml"
        value = yaml.safe_load((root / "config" / "config.yaml").read_text())
        behind(value["extensions"]["calc"]["args"])
        assert value["GOOSE_MODEL"] == "m"
        assert value["extensions"]["developer"] == {"type": "builtin"}

    @pytest.mark.parametrize(
        ("name", "file"), [("codex", ".codex/config.toml"), ("opencode", ".opencode/opencode.json")]
    )
    def test_a_file_that_cannot_be_read_ends_the_start(
        self, name: str, file: str, around: Around, tmp_path: Path
    ) -> None:
        write(tmp_path / ("user" if name == "codex" else ".") / file, '{"mcp": ')
        with pytest.raises(InvalidCall):
            tell([name], {}, around)


class TestMac:
    def test_the_profile_lets_nothing_but_the_gateway_be_reached(self, around: Around) -> None:
        rules = seatbelt(around).splitlines()
        assert rules[:3] == ["(version 1)", "(allow default)", "(deny network*)"]
        reached = [rule for rule in rules if rule.startswith("(allow network")]
        assert reached == [
            '(allow network-outbound (remote ip "localhost:4711"))',
            '(allow network-outbound (remote unix-socket (path-literal "/run/x/aegis.sock")))',
            '(allow network-outbound (remote unix-socket (path-literal "/run/x/hook.sock")))',
        ]
        denied = rules.index(f'(deny file-read* file-write* (subpath "{around.home}"))')
        assert denied < rules.index(reached[0])  # of several rules that fit the last counts
        quoted = seatbelt(replace(around, home=Path('/a"b)(allow network*')))
        assert '(subpath "/a\\"b)(allow network*")' in quoted

    def test_the_command_is_started_by_sandbox_exec_or_not_at_all(self, around: Around) -> None:
        told = fenced(tell(["agent", "x"], {}, around), around, program="/bin/sh")
        assert told.command == ["/bin/sh", "-p", seatbelt(around), "agent", "x"]
        assert told.environment["HTTPS_PROXY"] == URL
        with pytest.raises(InvalidCall, match="cannot be kept"):
            fenced(tell(["agent"], {}, around), around, program="/nonexistent/sandbox-exec")


class TestLanguages:
    def test_python_and_node_load_the_hooks_by_themselves(self, around: Around, tmp_path: Path) -> None:
        module = tmp_path / "node_modules" / "aegis-guard" / "dist" / "register.mjs"
        module.parent.mkdir(parents=True)
        module.write_text("")
        told = tell(["node", "agent.js"], {"PYTHONPATH": "/own", "NODE_OPTIONS": "--own"}, around).environment
        first, own = told["PYTHONPATH"].split(":")
        assert (Path(first) / "sitecustomize.py").is_file()
        assert own == "/own"
        assert told["NODE_OPTIONS"] == f"--own --import={module.as_uri()}"
        assert told["AEGIS_URL"] == "unix:///run/x/aegis.sock"
