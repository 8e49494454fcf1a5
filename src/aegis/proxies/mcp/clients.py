"""The clients whose configuration is edited, and how a server of theirs is put behind the proxy, and back."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aegis.errors import InvalidCall
from aegis.proxies.edits import read_json, write_json
from aegis.proxies.mcp.entries import Entry, unwrapped, wrapped
from aegis.proxies.tables import read_toml, write_tables

_MAC: Final = "Library/Application Support"


@dataclass(frozen=True, kw_only=True, slots=True)
class McpClient:
    """One client: where its file is, relative to the user's home or to a project, and what the servers are called.

    `bare_url_is_older` says that a `url` without a `type` means the transport before streamable HTTP.
    """

    name: str
    title: str
    user: str
    project: str = ""
    member: str = "mcpServers"
    toml: bool = False
    bare_url_is_older: bool = False


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
        McpClient(
            name="gemini",
            title="Gemini CLI",
            user=".gemini/settings.json",
            project=".gemini/settings.json",
            bare_url_is_older=True,
        ),
        McpClient(
            name="codex",
            title="Codex",
            user=".codex/config.toml",
            project=".codex/config.toml",
            member="mcp_servers",
            toml=True,
        ),
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

    def edit(name: str, entry: Entry) -> Entry | None:
        return wrapped(name, entry, wrapper, bare_url_is_older=client.bare_url_is_older)

    return _edited(path, client, only, edit, wraps=True)


def unwrap_all(path: Path, client: McpClient, *, only: str | None = None) -> Edit:
    """Take the servers of a file out of the proxy again."""
    return _edited(path, client, only, lambda _, entry: unwrapped(entry), wraps=False)


def _edited(
    path: Path, client: McpClient, only: str | None, edit: Callable[[str, Entry], Entry | None], *, wraps: bool
) -> Edit:
    before = read_toml(path) if client.toml else read_json(path)
    if before is None:
        raise InvalidCall(f"{client.title} has no configuration at `{path}`", code="not_found", status=404)
    value = copy.deepcopy(before)
    changed: list[str] = []
    left: list[str] = []
    for servers in _sections(value, client.member):
        for name, entry in servers.items():
            if only is not None and name != only:
                continue
            try:
                new = edit(name, entry if isinstance(entry, dict) else {})
            except InvalidCall:
                left.append(name)
                continue
            if new is not None:
                servers[name] = new
                changed.append(name)
    backup = None
    if changed and client.toml:
        backup = write_tables(path, client.member, {name: value[client.member][name] for name in changed})
    elif changed:
        backup = write_json(path, value)
    return Edit(path=path, changed=tuple(changed), left=tuple(left) if wraps else (), backup=backup)


def _sections(value: dict[str, Any], member: str) -> list[dict[str, Any]]:
    """Every list of servers in a file: the file's own, and those of the projects that Claude Code keeps in it."""
    projects = value.get("projects")
    holders = [value, *(projects.values() if isinstance(projects, dict) else ())]
    found = [holder.get(member) for holder in holders if isinstance(holder, dict)]
    return [servers for servers in found if isinstance(servers, dict)]
