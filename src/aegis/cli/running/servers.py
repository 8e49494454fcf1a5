"""The MCP servers of each host, put behind `aegis mcp wrap` in what a run tells the host.

The user's own files are only read.

A server that the host may have to sign in to itself (a URL without a credential beside it) stays as it is: its calls
are decided by the host's hook or its model like any other. `left` names those.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from aegis.core.addresses import is_loopback
from aegis.errors import InvalidCall
from aegis.proxies.edits import read_bytes, read_json
from aegis.proxies.mcp.clients import Entry, is_wrapped, wrapped

KEY: Final = "key"
"""The file of a run in which the proxies of its MCP servers find the agent's key."""
_OPTION: Final = "--mcp-config"
_CREDENTIALS: Final = ("headers", "http_headers", "env_http_headers", "bearer_token_env_var")
_BARE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
Servers = dict[str, Entry]


@dataclass(kw_only=True, slots=True)
class McpServers:
    """The servers of one host: those behind the proxy as the host spells them, and the names of those that are not."""

    behind: Servers = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    def add(self, name: str, entry: Any, wrapper: Sequence[str], *, bare_url_is_older: bool = False) -> None:
        """Put one server behind the proxy where that can be done; a later one takes the place of an earlier."""
        self.behind.pop(name, None)
        if not isinstance(entry, dict) or is_wrapped(entry) or entry.get("disabled") or entry.get("enabled") is False:
            return
        try:
            made = _wrapped(name, entry, wrapper, bare_url_is_older=bare_url_is_older)
        except InvalidCall:
            made = None
        if made is None:
            self.left.append(name)
        else:
            self.behind[name] = made


def _wrapped(name: str, entry: Entry, wrapper: Sequence[str], *, bare_url_is_older: bool) -> Entry | None:
    url = next((entry[one] for one in ("httpUrl", "serverUrl", "url") if isinstance(entry.get(one), str)), "")
    if url and "command" not in entry and not any(entry.get(one) for one in _CREDENTIALS) and not _is_here(url):
        return None
    return wrapped(name, entry, wrapper, bare_url_is_older=bare_url_is_older)


def _is_here(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


# Claude Code: `--mcp-config FILE` is laid over what the user, the project and plugins bring, by the server's name.


def of_claude(command: list[str], environment: Mapping[str, str], folder: Path, wrapper: Sequence[str]) -> McpServers:
    """Put those that Claude Code is configured with into files of this run, and name these in `command`.

    Servers of a project's `.mcp.json` are taken where the user has agreed to them: a file that is named on the command
    line asks nobody.
    """
    found = McpServers()
    for number, at in enumerate(_named_files(command)):
        own = McpServers()
        option = f"{_OPTION}=" if command[at].startswith(f"{_OPTION}=") else ""
        text = command[at].removeprefix(option)
        value = _parsed(text) if text.lstrip().startswith("{") else read_json(Path(text))
        servers = _servers(value, "mcpServers")
        for name, entry in servers.items():
            own.add(name, entry, wrapper)
        command[at] = option + _file(folder, f"claude-mcp-{number}.json", {"mcpServers": servers | own.behind})
        found.left += own.left
    if "--strict-mcp-config" in command:
        return found
    place = environment.get("CLAUDE_CONFIG_DIR")
    user = read_json((Path(place) if place else Path.home()) / ".claude.json") or {}
    projects = user.get("projects")
    here = projects.get(str(Path.cwd()), {}) if isinstance(projects, dict) else {}
    project = _servers(read_json(Path.cwd() / ".mcp.json"), "mcpServers")
    agreed = _agreed([read_json(one) for one in _claude_settings(place)] + [here])
    shared = {name: entry for name, entry in project.items() if agreed(name)}
    for servers in (_servers(user, "mcpServers"), shared, _servers(here, "mcpServers")):
        for name, entry in servers.items():
            found.add(name, entry, wrapper)
    if found.behind:
        # Before everything else: the option takes every word that follows it up to the next option.
        command[1:1] = [_OPTION, _file(folder, "claude-mcp.json", {"mcpServers": found.behind})]
    return found


def _named_files(command: Sequence[str]) -> Iterator[int]:
    """Where the user names servers on the command line: the option takes every word up to the next one."""
    inside = False
    for at, word in enumerate(command):
        if word.startswith("-"):
            inside = word == _OPTION
            if word.startswith(f"{_OPTION}="):
                yield at
        elif inside:
            yield at


def _claude_settings(place: str | None) -> Iterable[Path]:
    user = Path(place) if place else Path.home() / ".claude"
    return user / "settings.json", Path.cwd() / ".claude" / "settings.local.json"


def _agreed(settings: Sequence[dict[str, Any] | None]) -> Any:
    """Whether the user has agreed to a server of the project, by its name."""
    known = [one for one in settings if isinstance(one, dict)]
    every = any(one.get("enableAllProjectMcpServers") is True for one in known)
    enabled = {name for one in known for name in one.get("enabledMcpjsonServers") or ()}
    disabled = {name for one in known for name in one.get("disabledMcpjsonServers") or ()}
    return lambda name: (every or name in enabled) and name not in disabled


# Codex: `-c mcp_servers.NAME.command=...` replaces the words of a server, and leaves the rest of it as it stands.


def of_codex(environment: Mapping[str, str], wrapper: Sequence[str]) -> McpServers:
    """Find the servers of the user, and of a project that the user trusts; those with a URL keep it."""
    found = McpServers()
    place = environment.get("CODEX_HOME")
    user = _toml((Path(place) if place else Path.home() / ".codex") / "config.toml")
    layers = [user]
    trusted = user.get("projects", {})
    for folder in _upward():
        if trusted.get(str(folder), {}).get("trust_level") == "trusted":
            layers += [_toml(one / ".codex" / "config.toml") for one in reversed(list(_upward(folder)))]
            break
    for layer in layers:
        for name, entry in _servers(layer, "mcp_servers").items():
            if isinstance(entry, dict) and "command" in entry and _BARE.issuperset(name):
                found.add(name, entry, wrapper)
            else:
                found.left.append(name)
    return found


# Gemini CLI: its settings are a file of this run already.


def of_gemini(settings: dict[str, Any], wrapper: Sequence[str]) -> McpServers:
    """Put the servers in `settings`, which are the run's own, behind the proxy; a project's file is laid over them."""
    found = McpServers()
    over = _servers(read_json(Path.cwd() / ".gemini" / "settings.json"), "mcpServers")
    for name, entry in _servers(settings, "mcpServers").items():
        if name not in over:
            found.add(name, entry, wrapper, bare_url_is_older=True)
    found.left += over
    if found.behind:
        settings["mcpServers"] |= found.behind
    return found


# OpenCode: `OPENCODE_CONFIG_CONTENT` is laid over its files, member by member.


def of_opencode(content: dict[str, Any], environment: Mapping[str, str], wrapper: Sequence[str]) -> McpServers:
    """Put the local servers of its files into `content`, behind the proxy; those with a URL keep it."""
    found = McpServers()
    merged: Servers = {}
    for path in _opencode_files(environment):
        merged |= _servers(_relaxed(path), "mcp")
    merged |= _servers(content, "mcp")
    for name, entry in merged.items():
        words = entry.get("command") if isinstance(entry, dict) else None
        if isinstance(words, list) and words:
            found.add(name, {**entry, "command": words[0], "args": words[1:]}, wrapper)
        else:
            found.left.append(name)
    own = content.setdefault("mcp", {})
    for name, made in found.behind.items():
        words = [made.pop("command"), *made.pop("args")]
        own[name] = {**own.get(name, {}), "type": "local", "command": words}
    return found


def _opencode_files(environment: Mapping[str, str]) -> Iterator[Path]:
    names = ("config.json", "opencode.json", "opencode.jsonc")
    user = Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opencode"
    yield from (user / name for name in names)
    if environment.get("OPENCODE_CONFIG"):
        yield Path(environment["OPENCODE_CONFIG"])
    folders = list(reversed(list(_upward())))
    yield from (folder / name for folder in folders for name in names[1:])
    yield from (folder / ".opencode" / name for folder in folders for name in names[1:])


# goose: `GOOSE_PATH_ROOT` is a root of this run, with links to the user's files and a configuration of ours.


def of_goose(environment: dict[str, str], folder: Path, wrapper: Sequence[str]) -> McpServers:
    """Give goose a root in which its extensions are behind the proxy, where it has any that can be."""
    found = McpServers()
    root = environment.get("GOOSE_PATH_ROOT")
    places = {one: Path(root) / one for one in ("config", "data", "state")} if root else _goose_places(environment)
    data = read_bytes(places["config"] / "config.yaml")
    try:
        value = yaml.safe_load(data or b"")
    except yaml.YAMLError as error:
        raise InvalidCall("the configuration of goose is not YAML", code="host") from error
    extensions = _servers(value, "extensions")
    for name, entry in extensions.items():
        kind = entry.get("type") if isinstance(entry, dict) else None
        if kind == "stdio" and isinstance(entry.get("cmd"), str):
            found.add(name, {"command": entry["cmd"], **entry}, wrapper)
        elif kind in ("streamable_http", "sse"):
            found.left.append(name)
    if not found.behind:
        return found
    for name, made in found.behind.items():
        extensions[name] = {**extensions[name], "cmd": made["command"], "args": made["args"]}
    own = folder / "goose"
    for name, place in places.items():
        if name == "config":
            (own / name).mkdir(parents=True)
            for path in place.iterdir():
                if path.name != "config.yaml":
                    (own / name / path.name).symlink_to(path)
        elif place.is_dir():
            (own / name).symlink_to(place)
    (own / "config" / "config.yaml").write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")
    environment["GOOSE_PATH_ROOT"] = str(own)
    return found


def _goose_places(environment: Mapping[str, str]) -> dict[str, Path]:
    where = (("config", "XDG_CONFIG_HOME", ".config"), ("data", "XDG_DATA_HOME", ".local/share"))
    places = (*where, ("state", "XDG_STATE_HOME", ".local/state"))
    return {one: Path(environment.get(name) or Path.home() / usual) / "goose" for one, name, usual in places}


# What the files of hosts hold.


def _servers(value: Any, member: str) -> Servers:
    found = value.get(member) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _upward(start: Path | None = None) -> Iterator[Path]:
    """The folder and those above it, up to the root of its repository."""
    here = start or Path.cwd()
    root = next((one for one in (here, *here.parents) if (one / ".git").exists()), here)
    for one in (here, *here.parents):
        yield one
        if one == root:
            return


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((read_bytes(path) or b"").decode())
    except ValueError as error:
        raise InvalidCall(f"`{path}` is not TOML", code="host") from error


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidCall("`--mcp-config` holds no JSON", code="host") from error


def _relaxed(path: Path) -> Any:
    """What a file of JSON with comments and trailing commas says; `None` where there is none."""
    data = read_bytes(path)
    if data is None:
        return None
    text = data.decode(errors="replace")
    kept: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == '"':
            end = at + 1
            while end < len(text) and text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            kept.append(text[at : end + 1])
            at = end + 1
        elif text.startswith("//", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            at = len(text) if end < 0 else end + 2
        else:
            if text[at] in "]}":
                while kept and (kept[-1].isspace() or kept[-1] == ","):
                    kept.pop()
            kept.append(text[at])
            at += 1
    try:
        return json.loads("".join(kept))
    except ValueError as error:
        raise InvalidCall(f"`{path}` is not JSON", code="host") from error


def _file(folder: Path, name: str, value: Any) -> str:
    path = folder / name
    path.write_text(json.dumps(value), encoding="utf-8")
    return str(path)


def wrapper(*, socket: str, agent: str, home: Path, key: str, folder: Path) -> list[str]:
    """The command that stands before a server's own, up to the server's name; the key is in a file of the run."""
    place = folder / KEY
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(key)
    words = [sys.executable, "-P", "-m", "aegis.cli", "mcp", "wrap", "--url", f"unix://{socket}"]
    return [*words, "--api-key-file", str(place), "--agent", agent, "--home", str(home)]
