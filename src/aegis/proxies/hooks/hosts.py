"""The hosts that a hook can be installed for: where each keeps its hooks, and how it writes one down."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MARK: Final = "# aegis-hook"

Entry = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """One host. `settings` is relative to the user's home, and to a project's folder where `shared` names no other.

    `moved` is an environment variable that names the folder of the user's settings, and the file in it.
    """

    name: str
    title: str
    settings: str
    events: tuple[str, str]
    entry: Callable[[str, int], Entry]
    base: Entry
    shared: str = ""
    moved: tuple[str, str] | None = None


def _matched(command: str, timeout: int) -> Entry:
    handler = {"type": "command", "command": command, "timeout": timeout}
    return {"matcher": "*", "hooks": [handler]}


def _claude(command: str, timeout: int) -> Entry:
    # `onFailure` makes current versions block where the hook itself cannot say so, as when the host kills it.
    handler = {"type": "command", "command": command, "timeout": timeout, "onFailure": "block"}
    return {"matcher": "*", "hooks": [handler]}


def _gemini(command: str, timeout: int) -> Entry:
    handler = {"name": "aegis", "type": "command", "command": command, "timeout": timeout * 1_000}
    return {"matcher": "*", "hooks": [handler]}


def _cursor(command: str, timeout: int) -> Entry:
    return {"command": command, "timeout": timeout, "failClosed": True}


def _copilot(command: str, timeout: int) -> Entry:
    return {"type": "command", "bash": command, "timeoutSec": timeout}


HOSTS: Final[dict[str, Host]] = {
    "claude": Host(
        name="claude",
        title="Claude Code",
        settings=".claude/settings.json",
        events=("PreToolUse", "PostToolUse"),
        entry=_claude,
        base={},
        moved=("CLAUDE_CONFIG_DIR", "settings.json"),
    ),
    "codex": Host(
        name="codex",
        title="Codex",
        settings=".codex/hooks.json",
        events=("PreToolUse", "PostToolUse"),
        entry=_matched,
        base={},
        moved=("CODEX_HOME", "hooks.json"),
    ),
    "gemini": Host(
        name="gemini",
        title="Gemini CLI",
        settings=".gemini/settings.json",
        events=("BeforeTool", "AfterTool"),
        entry=_gemini,
        base={},
    ),
    "cursor": Host(
        name="cursor",
        title="Cursor",
        settings=".cursor/hooks.json",
        events=("preToolUse", "postToolUse"),
        entry=_cursor,
        base={"version": 1},
    ),
    "copilot": Host(
        name="copilot",
        title="Copilot CLI",
        settings=".copilot/hooks/aegis.json",
        events=("preToolUse", "postToolUse"),
        entry=_copilot,
        base={"version": 1},
        shared=".github/hooks/aegis.json",
        moved=("COPILOT_HOME", "hooks/aegis.json"),
    ),
}


def settings_of(host: Host, project: Path | None = None) -> Path:
    """The host's file of a project, or of the user who runs this."""
    if project is not None:
        return project / (host.shared or host.settings)
    variable, name = host.moved or ("", "")
    moved = os.environ.get(variable, "")
    return Path(moved) / name if moved else Path.home() / host.settings


def every_place(host: Host, *folders: Path) -> list[Path]:
    """The files in which the host reads hooks: the user's, and those of folders that are homes or projects."""
    named = [folder / place for folder in folders for place in (host.settings, host.shared) if place]
    return list(dict.fromkeys([settings_of(host), *named]))


def is_ours(entry: object) -> bool:
    """Whether an entry of a host's list was written by us."""
    if not isinstance(entry, dict):
        return False
    handlers = entry.get("hooks")
    commands = [entry.get("command"), entry.get("bash")]
    if isinstance(handlers, list):
        commands += [one.get("command") for one in handlers if isinstance(one, dict)]
    return any(isinstance(command, str) and command.rstrip().endswith(MARK) for command in commands)
