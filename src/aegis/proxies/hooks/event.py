"""What a host says on standard input: which of its events this is, and the call or the result that it is about.

The forms are those of the hosts' documentation: Claude Code and Codex (`PreToolUse`, `PostToolUse`; Codex alone counts
the turns), Gemini CLI (`BeforeTool`, `AfterTool`), Cursor (`preToolUse`, `postToolUse`), Copilot CLI (the same two,
which its events do not name; and nearly the spelling of Claude Code, for hooks that were written for that).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from aegis.core.canonical import canonical
from aegis.core.json import parse
from aegis.errors import InvalidCall
from aegis.proxies.hooks.door import MAX_EVENT

# The hosts that a hook can be installed for: where each keeps its hooks, and how it writes one down.

MARK: Final = "# aegis-hook"

Entry = dict[str, Any]


class Host(Struct, frozen=True, kw_only=True):
    """One host. `settings` is relative to the user's home, and to a project's folder where `shared` names no other.

    `moved` is an environment variable that names the folder of the user's settings, and the file in it. `said` is the
    event by which the host tells what its user wrote.
    """

    name: str
    title: str
    settings: str
    events: tuple[str, str]
    entry: Callable[[str, int], Entry]
    base: Entry
    said: str
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


def _hosts_copilot(command: str, timeout: int) -> Entry:
    return {"type": "command", "bash": command, "timeoutSec": timeout}


HOSTS: Final[dict[str, Host]] = {
    "claude": Host(
        name="claude",
        title="Claude Code",
        settings=".claude/settings.json",
        events=("PreToolUse", "PostToolUse"),
        entry=_claude,
        base={},
        said="UserPromptSubmit",
        moved=("CLAUDE_CONFIG_DIR", "settings.json"),
    ),
    "codex": Host(
        name="codex",
        title="Codex",
        settings=".codex/hooks.json",
        events=("PreToolUse", "PostToolUse"),
        entry=_matched,
        base={},
        said="UserPromptSubmit",
        moved=("CODEX_HOME", "hooks.json"),
    ),
    "gemini": Host(
        name="gemini",
        title="Gemini CLI",
        settings=".gemini/settings.json",
        events=("BeforeTool", "AfterTool"),
        entry=_gemini,
        base={},
        said="BeforeAgent",
    ),
    "cursor": Host(
        name="cursor",
        title="Cursor",
        settings=".cursor/hooks.json",
        events=("preToolUse", "postToolUse"),
        entry=_cursor,
        base={"version": 1},
        said="beforeSubmitPrompt",
    ),
    "copilot": Host(
        name="copilot",
        title="Copilot CLI",
        settings=".copilot/hooks/aegis.json",
        events=("preToolUse", "postToolUse"),
        entry=_hosts_copilot,
        base={"version": 1},
        said="userPromptSubmitted",
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


Dialect = Literal["claude", "codex", "gemini", "cursor", "copilot"]
Phase = Literal["before", "after", "said"]
MAX_SESSION_CHARS: Final = 200

_EVENTS: Final[dict[str, tuple[Dialect, Phase]]] = {
    "PreToolUse": ("claude", "before"),
    "PostToolUse": ("claude", "after"),
    "BeforeTool": ("gemini", "before"),
    "AfterTool": ("gemini", "after"),
    "preToolUse": ("cursor", "before"),
    "postToolUse": ("cursor", "after"),
    "UserPromptSubmit": ("claude", "said"),
    "BeforeAgent": ("gemini", "said"),
    "beforeSubmitPrompt": ("cursor", "said"),
    "userPromptSubmitted": ("copilot", "said"),
}
_OF_OTHERS: Final = frozenset({"tool_use_id", "transcript_path", "conversation_id"})
_MCP: Final = ("mcp__", "MCP:")


class HookEvent(Struct, frozen=True, kw_only=True):
    """One event. `key` finds the decision on a call again when its result comes; `result` is any JSON value.

    Where the user said something, `said` is that, and there is no tool.
    """

    name: str
    dialect: Dialect
    phase: Phase
    session: str
    tool: str
    server: str | None
    arguments: dict[str, Any]
    call_id: str
    result: Any = None
    said: str = ""

    @property
    def key(self) -> str:
        """By what the call is known in both of its events: the host's id, else what is called."""
        return self.call_id or self.digest_of(self.arguments)

    @property
    def again(self) -> str:
        """By what a call is known when the model makes it once more, under another id."""
        return self.digest_of(self.arguments)

    def digest_of(self, arguments: dict[str, Any]) -> str:
        """The name of a call of this tool with these arguments in this session."""
        body = canonical({"tool": self.tool, "server": self.server, "arguments": arguments, "session": self.session})
        return hashlib.sha256(body).hexdigest()


def read_event(data: bytes) -> HookEvent:
    """The event that `data` spells; raises `InvalidCall` for anything that no known host says."""
    if len(data) > MAX_EVENT:
        raise InvalidCall("the event is too large to be looked at", code="too_large", status=413)
    wire = parse(data)
    if not isinstance(wire, dict):
        raise InvalidCall("the event is not a JSON object")
    if "hook_event_name" not in wire and not wire.keys().isdisjoint(("toolName", "prompt")):
        wire = _copilot(wire)
    name = wire.get("hook_event_name")
    known = _EVENTS.get(name) if isinstance(name, str) else None
    if known is None or not isinstance(name, str):
        raise InvalidCall("`hook_event_name` names no event of a known host", hint=", ".join(_EVENTS))
    dialect, phase = known
    # Copilot alone tells the time of a call, but neither its id nor where the conversation is kept.
    if dialect != "gemini" and "timestamp" in wire and wire.keys().isdisjoint(_OF_OTHERS):
        dialect = "copilot"
    elif dialect == "claude" and "turn_id" in wire:
        dialect = "codex"
    session = wire.get("session_id") or wire.get("conversation_id") or ""
    if not isinstance(session, str) or len(session) > MAX_SESSION_CHARS:
        raise InvalidCall("`session_id` is not a name")
    if phase == "said":
        said = wire.get("prompt")
        if not isinstance(said, str):
            raise InvalidCall("`prompt` is not text")
        return HookEvent(
            name=name, dialect=dialect, phase=phase, session=session, tool="", server=None, arguments={}, call_id="",
            said=said,
        )  # fmt: skip
    tool, server = _named(wire)
    arguments = wire.get("tool_input")
    if isinstance(arguments, str):
        arguments = parse(arguments.encode())
    if not isinstance(arguments, dict):
        raise InvalidCall("`tool_input` is not a JSON object")
    call_id = wire.get("tool_use_id") or ""
    if not isinstance(call_id, str) or len(call_id) > MAX_SESSION_CHARS:
        raise InvalidCall("`tool_use_id` is not a name")
    return HookEvent(
        name=name,
        dialect=dialect,
        phase=phase,
        session=session,
        tool=tool,
        server=server,
        arguments=arguments,
        call_id=call_id,
        result=_result(wire) if phase == "after" else None,
    )


def _copilot(wire: dict[str, Any]) -> dict[str, Any]:
    """An event of Copilot's own spelling in that of the others; that a result is there says which event it is."""
    if "toolName" not in wire:
        told = {"hook_event_name": "userPromptSubmitted", "session_id": wire.get("sessionId")}
        return {**told, "timestamp": wire.get("timestamp"), "prompt": wire["prompt"]}
    after = "toolResult" in wire
    return {
        "hook_event_name": "postToolUse" if after else "preToolUse",
        "timestamp": wire.get("timestamp"),
        "session_id": wire.get("sessionId"),
        "tool_name": wire["toolName"],
        "tool_input": wire.get("toolArgs"),
        **({"tool_result": wire["toolResult"]} if after else {}),
    }


def _named(wire: dict[str, Any]) -> tuple[str, str | None]:
    """The tool and its server: a tool of an MCP server has the server in its name, or beside it."""
    tool = wire.get("tool_name")
    if not isinstance(tool, str) or not tool.strip():
        raise InvalidCall("`tool_name` is missing")
    context = wire.get("mcp_context")
    if isinstance(context, dict) and isinstance(context.get("server_name"), str):
        own = context.get("tool_name")
        return own if isinstance(own, str) and own else tool, f"mcp:{context['server_name']}"
    for prefix in _MCP:
        if tool.startswith(prefix):
            separator = prefix[-1] if prefix == "MCP:" else "__"
            server, _, name = tool.removeprefix(prefix).partition(separator)
            if server and name:
                return name, f"mcp:{server}"
    return tool, None


def _result(wire: dict[str, Any]) -> Any:
    for member in ("tool_response", "tool_output", "result_json"):
        if member in wire:
            return wire[member]
    told = wire.get("tool_result")
    if isinstance(told, dict):  # of which the model sees the text
        return told.get("text_result_for_llm", told.get("textResultForLlm", told))
    return told
