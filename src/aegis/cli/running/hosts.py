"""What each host of agents is told so that its calls are decided: variables, options and files of this run alone.

Nothing of the user's own is written. A program that is no known host gets the base URLs of models, and the hooks of
Python and Node.js for whatever it runs. The forms are those of the hosts' public documentation.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aegis.cli.hookline import MARGIN_S
from aegis.cli.running import servers
from aegis.cli.running.process import name_of
from aegis.errors import InvalidCall
from aegis.proxies.edits import read_json
from aegis.proxies.hooks.event import HOSTS, Host, every_place
from aegis.proxies.hooks.install import guarded, installed, unguarded

HOOK_S: Final = 600  # seconds that a host gives the hook: as long as a held call may wait for a person
_GEMINI_SETTINGS: Final = Path("/etc/gemini-cli/settings.json")
_PYTHON_HOOK: Final = Path(__file__).parent / "hook"
_PLUGIN: Final = Path(__file__).parent / "opencode.js"
_REGISTER: Final = Path("node_modules", "aegis-guard", "dist", "register.mjs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Around:
    """What is around the command: the gateway, whom it decides for, and a folder for files of this run."""

    folder: Path
    home: Path
    agent: str
    port: int
    socket: str
    hooks: str
    config: str | None
    key: str
    dialects: Sequence[str]

    @property
    def url(self) -> str:
        """The gateway's address for programs that know TCP alone."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def hook(self) -> str:
        """The command that a host runs around its tools; it holds no key, its socket knows who asks."""
        words = [sys.executable, "-P", "-m", "aegis.cli", "hook", "--door", self.hooks, "--home", str(self.home)]
        words += ["--agent", self.agent, "--timeout", str(HOOK_S - MARGIN_S)]
        return shlex.join(words + (["--config", self.config] if self.config is not None else []))

    def wrapper(self) -> list[str]:
        """The command that stands before an MCP server's own, up to the server's name."""
        return servers.wrapper(socket=self.socket, agent=self.agent, home=self.home, key=self.key, folder=self.folder)


@dataclass(kw_only=True, slots=True)
class HostWords:
    """What the command is told: its words and its environment; `by` says how its calls are decided.

    `alone` names the MCP servers that the host speaks to without our proxy between them, `undecided` what the host does
    without calling a tool.
    """

    command: list[str]
    environment: dict[str, str]
    by: list[str] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


def tell(command: Sequence[str], environment: Mapping[str, str], around: Around) -> HostWords:
    """What `command` is told; raises `InvalidCall` where nothing could be decided of what it does."""
    told = HostWords(command=list(command), environment=dict(environment))
    _models(told, around)
    host = _HOSTS.get(name_of(command))
    if host is not None:
        host(told, around)
    else:
        _languages(told, around)
    return told


# The APIs of models: the gateway's address in place of the provider's, and the agent's key in place of the provider's.

_OPENAI: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE")  # the latter: LiteLLM and what is built on it, as aider
_ANTHROPIC: Final = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "ANTHROPIC_HOST")
_LOOPBACK: Final = ("127.0.0.1", "localhost")


def _models(told: HostWords, around: Around) -> None:
    url, key, environment = around.url, around.key, told.environment
    if "openai" in around.dialects:
        environment |= dict.fromkeys(_OPENAI, f"{url}/v1") | {"OPENAI_API_KEY": key}
        environment |= {"OPENAI_HOST": url, "OPENAI_BASE_PATH": "v1/chat/completions"}  # goose
    if "anthropic" in around.dialects:
        environment |= dict.fromkeys(_ANTHROPIC, url) | {"ANTHROPIC_API_KEY": key}
        environment.pop("ANTHROPIC_AUTH_TOKEN", None)  # two credentials in one request are none
    if "gemini" in around.dialects:
        environment |= {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": key, "GOOGLE_API_KEY": key}
    if "ollama" in around.dialects:
        environment |= {"OLLAMA_HOST": url, "OLLAMA_API_BASE": url, "OLLAMA_API_KEY": key}
    if "bedrock" in around.dialects:
        environment |= {"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url, "AWS_BEARER_TOKEN_BEDROCK": key}
    if around.dialects:
        told.by.append(f"models ({', '.join(around.dialects)})")
    for name in ("NO_PROXY", "no_proxy"):
        kept = [one for one in environment.get(name, "").split(",") if one]
        environment[name] = ",".join(dict.fromkeys([*kept, *_LOOPBACK]))


# The hooks of programs that are no known host: Python and Node.js load them by themselves.


def _languages(told: HostWords, around: Around) -> None:
    environment = told.environment
    environment |= {"AEGIS_URL": f"unix://{around.socket}", "AEGIS_API_KEY": around.key, "AEGIS_AGENT": around.agent}
    before = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
    environment["PYTHONPATH"] = os.pathsep.join([str(_PYTHON_HOOK), *before])
    told.by.append("Python")
    register = _register(told.command)
    if register is not None:
        options = environment.get("NODE_OPTIONS", "")
        environment["NODE_OPTIONS"] = f"{options} --import={register.as_uri()}".strip()
        told.by.append("Node.js")


def _register(command: Sequence[str]) -> Path | None:
    """Where the folder of the program, or this one, has the package `aegis-guard` for Node.js."""
    named = [Path(word).absolute().parent for word in command[1:2] if Path(word).is_file()]
    for start in (*named, Path.cwd()):
        for folder in (start, *start.parents):
            if (folder / _REGISTER).is_file():
                return folder / _REGISTER
    return None


# The hosts.


def _settings(host: Host, around: Around) -> dict[str, list[Any]]:
    """The hooks of `host`, in its own form."""
    entries = {event: [host.entry(guarded(around.hook), HOOK_S)] for event in host.events}
    return entries | {host.said: [host.entry(unguarded(around.hook), HOOK_S)]}


def _claude(told: HostWords, around: Around) -> None:
    """`--settings FILE` is laid over every other settings file; hooks of several files all run."""
    if any(word == "--settings" or word.startswith("--settings=") for word in told.command):
        hint = "put yours into `.claude/settings.local.json`"
        raise InvalidCall("`--settings` is what this command gives Claude Code itself", code="settings", hint=hint)
    settings = {"hooks": _settings(HOSTS["claude"], around), "disableAllHooks": False}
    told.command[1:1] = ["--settings", _written(around, "claude.json", settings)]
    _behind(told, servers.of_claude(told.command, told.environment, around.folder, around.wrapper()))
    if "anthropic" in around.dialects:  # asks nobody whether it may be used, as a key from elsewhere would
        told.environment["ANTHROPIC_AUTH_TOKEN"] = told.environment.pop("ANTHROPIC_API_KEY")
    told.by.append("hooks")


def _codex(told: HostWords, around: Around) -> None:
    """`-c KEY=TOML` is laid over every other configuration; a hook that nobody reviewed would be left out silently."""
    options = ["--dangerously-bypass-hook-trust", "-c", "features.hooks=true"]
    for event, entries in _settings(HOSTS["codex"], around).items():
        options += ["-c", f"hooks.{event}={_toml(entries)}"]
    if "openai" in around.dialects:
        provider = {
            "name": "Aegis",
            "base_url": f"{around.url}/v1",
            "env_key": "OPENAI_API_KEY",
            "wire_api": "responses",
        }
        options += ["-c", 'model_provider="aegis"']
        options += [
            word for name, value in provider.items() for word in ("-c", f"model_providers.aegis.{name}={_toml(value)}")
        ]
    found = servers.of_codex(told.environment, around.wrapper())
    for name, entry in found.behind.items():
        for member in ("command", "args"):
            options += ["-c", f"mcp_servers.{name}.{member}={_toml(entry[member])}"]
    told.command[1:1] = options
    _behind(told, found)
    told.by.append("hooks")


def _gemini(told: HostWords, around: Around) -> None:
    """`GEMINI_CLI_HOME` is a home of this run: the user's own files by links, and settings that are theirs and ours.

    Current versions take the system's settings from root alone, so that a file of this run cannot be those.
    """
    variable = "GEMINI_CLI_HOME"
    own = Path(told.environment.get(variable) or Path.home()) / ".gemini"
    system = Path(told.environment.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH") or _GEMINI_SETTINGS)
    for later in (Path.cwd() / ".gemini" / "settings.json", system):
        switch = (read_json(later) or {}).get("hooksConfig", {})
        if switch.get("enabled") is False or "aegis" in switch.get("disabled", ()):
            hint = "take `hooksConfig` out of it"
            raise InvalidCall(f"`{later}` switches off the hooks of Gemini CLI", code="host", hint=hint)
    settings = read_json(own / "settings.json") or {}
    hooks = settings.setdefault("hooks", {})
    for event, entries in _settings(HOSTS["gemini"], around).items():
        hooks[event] = [*hooks.get(event, []), *entries]
    settings["hooksConfig"] = {**settings.get("hooksConfig", {}), "enabled": True, "disabled": []}
    if "gemini" in around.dialects:  # with a base URL alone it picks a way to sign in that it then refuses itself
        security = settings.setdefault("security", {})
        security["auth"] = {**security.get("auth", {}), "selectedType": "gemini-api-key"}
    _behind(told, servers.of_gemini(settings, around.wrapper()))
    place = around.folder / "gemini" / ".gemini"
    place.mkdir(parents=True)
    for entry in own.iterdir() if own.is_dir() else ():
        if entry.name != "settings.json":
            (place / entry.name).symlink_to(entry)
    (place / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    told.environment[variable] = str(place.parent)
    if "gemini" in around.dialects:
        told.environment.pop("GOOGLE_API_KEY", None)  # it warns of two keys
    told.by.append("hooks")


def _opencode(told: HostWords, around: Around) -> None:
    """`OPENCODE_CONFIG_CONTENT` is laid over the configuration files; plugins of every source are loaded."""
    variable = "OPENCODE_CONFIG_CONTENT"
    content: dict[str, Any] = json.loads(told.environment.get(variable) or "{}")
    content["plugin"] = [*content.get("plugin", []), _PLUGIN.as_uri()]
    providers = content.setdefault("provider", {})
    for name, path in (("openai", "/v1"), ("anthropic", "/v1")):
        if name in around.dialects:
            options = {"baseURL": around.url + path, "apiKey": around.key}
            providers[name] = {**providers.get(name, {}), "options": options}
    found = servers.of_opencode(content, told.environment, around.wrapper())
    told.environment["AEGIS_HOOK_SERVERS"] = json.dumps([*found.behind, *found.left])
    _behind(told, found)
    told.environment[variable] = json.dumps(content)
    told.environment["AEGIS_HOOK_COMMAND"] = json.dumps(shlex.split(around.hook))
    told.by.append("a plugin")


def _cursor(told: HostWords, around: Around) -> None:
    """Neither its hooks nor its models can be named for one run: its calls are decided where the hook is installed."""
    host = HOSTS["cursor"]
    if not any(installed(path, host) for path in every_place(host, Path.home(), Path.cwd()) if path.is_file()):
        hint = "`aegis hook install cursor` (or `--project .`) writes the hook that it reads"
        raise InvalidCall("Cursor takes no hooks for one run, and has none installed", code="host", hint=hint)
    told.by.append("its installed hooks")


def _models_alone(told: HostWords, around: Around) -> None:
    """Its tools are called by a model, and that is where they are decided."""
    if not around.dialects:
        hint = "`proxies.providers` of the configuration, or a provider's key in the environment, names the models"
        name = name_of(told.command)
        raise InvalidCall(f"`{name}` is decided by its models, and none is known", code="host", hint=hint)


def _goose(told: HostWords, around: Around) -> None:
    """Its extensions are MCP servers beside those that are part of it."""
    _models_alone(told, around)
    _behind(told, servers.of_goose(told.environment, around.folder, around.wrapper()))


def _behind(told: HostWords, found: servers.McpServers) -> None:
    """Say which MCP servers of the host stand behind the proxy, and which it speaks to itself."""
    if found.behind:
        told.by.append(f"the proxy of MCP ({', '.join(sorted(found.behind))})")
    told.alone += found.left


def _aider(told: HostWords, around: Around) -> None:
    """It is a program in Python that calls models by LiteLLM, and offers them no tools: it reads what they write."""
    _models_alone(told, around)
    told.undecided.append("edits, which aider reads out of the model's text, and commands that it proposes to you")
    _languages(told, around)


_HOSTS: Final[dict[str, Callable[[HostWords, Around], None]]] = {
    "claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode, "cursor-agent": _cursor,
    "goose": _goose, "aider": _aider,
}  # fmt: skip


def _written(around: Around, name: str, value: dict[str, Any]) -> str:
    path = around.folder / name
    path.write_text(json.dumps(value), encoding="utf-8")
    return str(path)


def _toml(value: Any) -> str:
    """Text, numbers, lists and mappings as an inline value of TOML (1.0), whose text JSON spells alike."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    return json.dumps(value)
