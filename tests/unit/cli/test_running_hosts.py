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
        with pytest.raises(InvalidCall, match="none is known"):
            tell([name], {}, replace(around, dialects=()))


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
