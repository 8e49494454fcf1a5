"""The clients whose configuration is edited, and how a server of theirs is put behind the proxy, and back."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aegis.errors import InvalidCall
from aegis.proxies.edits import read_json, write_json

_WORDS: Final = ("mcp", "wrap")
_MAC: Final = "Library/Application Support"


@dataclass(frozen=True, kw_only=True, slots=True)
class McpClient:
    """One client: where its file is, relative to the user's home or to a project, and what the servers are called."""

    name: str
    title: str
    user: str
    project: str = ""
    member: str = "mcpServers"


def _place(linux: str, mac: str) -> str:
    return f"{_MAC}/{mac}" if sys.platform == "darwin" else f".config/{linux}"


CLIENTS: Final[dict[str, McpClient]] = {
    one.name: one
    for one in (
        McpClient(name="claude-code", title="Claude Code", user=".claude.json", project=".mcp.json"),
        McpClient(
            name="claude-desktop",
            title="Claude Desktop",
            user=_place("Claude/claude_desktop_config.json", "Claude/claude_desktop_config.json"),
        ),
        McpClient(name="cursor", title="Cursor", user=".cursor/mcp.json", project=".cursor/mcp.json"),
        McpClient(
            name="vscode",
            title="Visual Studio Code",
            user=_place("Code/User/mcp.json", "Code/User/mcp.json"),
            project=".vscode/mcp.json",
            member="servers",
        ),
        McpClient(name="windsurf", title="Windsurf", user=".codeium/windsurf/mcp_config.json"),
        McpClient(name="gemini", title="Gemini CLI", user=".gemini/settings.json", project=".gemini/settings.json"),
    )
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """What was done to one file: the servers that changed, those that cannot be wrapped, and the file before."""

    path: Path
    changed: tuple[str, ...]
    left: tuple[str, ...] = ()
    backup: Path | None = None


def file_of(client: McpClient, project: Path | None) -> Path:
    """The client's file for the user, or for a project; raises `InvalidCall` where it has none for projects."""
    if project is None:
        return Path.home() / client.user
    if not client.project:
        raise InvalidCall(f"{client.title} has no configuration of projects", code="project")
    return project / client.project


def wrap_all(path: Path, client: McpClient, wrapper: Sequence[str], *, only: str | None = None) -> Edit:
    """Put the servers of a file behind the proxy: `wrapper` is our command up to the server's name."""
    return _edited(path, client, only, lambda name, entry: _wrapped(name, entry, wrapper))


def unwrap_all(path: Path, client: McpClient, *, only: str | None = None) -> Edit:
    """Take the servers of a file out of the proxy again."""
    return _edited(path, client, only, lambda _, entry: _unwrapped(entry))


def _edited(path: Path, client: McpClient, only: str | None, edit: Any) -> Edit:
    before = read_json(path)
    if before is None:
        raise InvalidCall(f"{client.title} has no configuration at `{path}`", code="not_found", status=404)
    value = copy.deepcopy(before)
    changed: list[str] = []
    left: list[str] = []
    for servers in _sections(value, client.member):
        for name, entry in servers.items():
            if only is not None and name != only:
                continue
            if not isinstance(entry, dict) or not isinstance(entry.get("command"), str):
                left.append(name)
                continue
            new = edit(name, entry)
            if new is not None:
                servers[name] = new
                changed.append(name)
    backup = write_json(path, value) if changed else None
    return Edit(path=path, changed=tuple(changed), left=tuple(left), backup=backup)


def _sections(value: dict[str, Any], member: str) -> list[dict[str, Any]]:
    """Every list of servers in a file: the file's own, and those of the projects that Claude Code keeps in it."""
    projects = value.get("projects")
    holders = [value, *(projects.values() if isinstance(projects, dict) else ())]
    found = [holder.get(member) for holder in holders if isinstance(holder, dict)]
    return [servers for servers in found if isinstance(servers, dict)]


def _is_wrapped(entry: dict[str, Any]) -> bool:
    args = entry.get("args")
    return (
        Path(entry["command"]).name == "aegis" and isinstance(args, list) and tuple(args[:2]) == _WORDS and "--" in args
    )


def _wrapped(name: str, entry: dict[str, Any], wrapper: Sequence[str]) -> dict[str, Any] | None:
    if _is_wrapped(entry):
        return None
    args = entry.get("args")
    own = [entry["command"], *(args if isinstance(args, list) else [])]
    program, *words = wrapper
    return {**entry, "command": program, "args": [*words, "--name", name, "--", *own]}


def _unwrapped(entry: dict[str, Any]) -> dict[str, Any] | None:
    if not _is_wrapped(entry):
        return None
    args = entry["args"]
    program, *words = args[args.index("--") + 1 :]
    return {**entry, "command": program, "args": words}
