"""The hosts that a hook can be installed for: where each keeps its hooks, and how it writes one down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MARK: Final = "# aegis-hook"

Entry = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """One host. `settings` is relative to the user's home, or to a project's folder where it keeps its own."""

    name: str
    title: str
    settings: str
    events: tuple[str, str]
    entry: Callable[[str, int], Entry]
    base: Entry


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


HOSTS: Final[dict[str, Host]] = {
    "claude": Host(
        name="claude",
        title="Claude Code",
        settings=".claude/settings.json",
        events=("PreToolUse", "PostToolUse"),
        entry=_claude,
        base={},
    ),
    "codex": Host(
        name="codex",
        title="Codex",
        settings=".codex/hooks.json",
        events=("PreToolUse", "PostToolUse"),
        entry=_matched,
        base={},
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
}


def settings_of(host: Host, folder: Path) -> Path:
    """The host's file below the user's home or a project."""
    return folder / host.settings


def is_ours(entry: object) -> bool:
    """Whether an entry of a host's list was written by us."""
    if not isinstance(entry, dict):
        return False
    handlers = entry.get("hooks")
    commands = [entry.get("command")]
    if isinstance(handlers, list):
        commands += [one.get("command") for one in handlers if isinstance(one, dict)]
    return any(isinstance(command, str) and command.rstrip().endswith(MARK) for command in commands)
