"""Claude Agent SDK: hooks that fail closed for what the program executes, and the SDK's own MCP servers in process.

The SDK drives a program that executes tools. Its hooks are the seam for these; they are put in beside those of the
host. What the host's own hooks and `can_use_tool` make of the arguments is decided again. The tools of an SDK MCP
server run in this process and are decided where the program's message about them arrives. A result that the program
does not let be replaced ends the run before the next request. A program that asks no hooks is not started where that
can be told before, and stopped at its first call where its settings say so.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from aegis.adapters import _mcp_results
from aegis.adapters._claude_hooks import Hooks, named
from aegis.adapters._enforce import Enforcer
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Method, Patches
from aegis.adapters._runner import Execution, RunnerGate
from aegis.adapters._scope import DECIDED, looping, scoped
from aegis.adapters._tools import Ran, ToolGate
from aegis.adapters.seams import Seams
from aegis.errors import UnhookedFramework

DISTRIBUTION: Final = "claude-agent-sdk"
SUPPORTED: Final = ((0, 2, 187), (0, 3))

# A hook waits as long as an approval may; the program takes a time-out for a failure, and a failure blocks.
TIMEOUT_SECONDS: Final = 86_400
_TOOL_USE: Final = "claudecode/toolUseId"
# With these the program asks no hooks, and says nothing of it.
_BARE_FLAG: Final = "bare"
_BARE_VARIABLE: Final = "CLAUDE_CODE_SIMPLE"
_OFF: Final = ("", "0", "false", "no", "off")

_conversations: Final[WeakKeyDictionary[Any, Hooks]] = WeakKeyDictionary()


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory)
    runner = RunnerGate(enforcer, memory)

    def query(module: Any) -> None:
        patches.replace(module.Query, "initialize", lambda original: _initializing(runner, original))
        patches.replace(module.Query, "start", lambda original: _starting(enforcer, original))
        patches.replace(module.Query, "_handle_sdk_mcp_request", lambda original: _serving(gate, original))

    patches.when("claude_agent_sdk._internal.query", query)
    patches.when(
        "claude_agent_sdk._internal.sdk_mcp_bridge", lambda module: patches.replace(module._Session, "_run", _running)
    )
    return Seams(
        seams=("PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "can_use_tool", "SDK MCP servers"),
        barred=("programs that ask no hooks (`--bare`, `CLAUDE_CODE_SIMPLE`)",),
        uncovered=(
            "what hooks in settings files or a permission tool make of arguments, until the call has run",
            "the first calls of a program whose own settings turn hooks off: the run ends with an alarm",
            "conversations that were connected before",
        ),
    )


def _initializing(gate: RunnerGate, original: Method) -> Method:
    async def initialize(query: Any) -> Any:
        hooks = _conversations[query] = Hooks(gate, frozenset(query.sdk_mcp_servers))
        given: dict[str, list[dict[str, Any]]] = query.hooks
        query.hooks = {**given, **_with_ours(hooks, given)}
        if query.can_use_tool is not None:
            query.can_use_tool = hooks.permission(query.can_use_tool)
        return await original(query)

    return initialize


def _starting(enforcer: Enforcer, original: Method) -> Method:
    """Refuse a program that is started without hooks; stop one that turns out to ask none."""

    async def start(query: Any) -> Any:
        transport = query.transport
        if _is_bare(getattr(transport, "_options", None)):
            await transport.close()
            raise UnhookedFramework(f"with `--{_BARE_FLAG}` or `{_BARE_VARIABLE}` no hook is asked, so it is refused")
        read = transport.read_messages

        async def messages() -> AsyncIterator[dict[str, Any]]:
            async for message in read():
                hooks = _conversations.get(query)
                tool = "" if hooks is None else hooks.unasked(message)
                if tool:
                    await transport.close()
                    enforcer.uncovered(named(tool)[0])
                    raise UnhookedFramework("the program asks no hooks, because of its settings; it was stopped")
                yield message

        transport.read_messages = messages
        return await original(query)

    return start


def _is_bare(options: Any) -> bool:
    """Whether a program with these options asks no hooks."""
    variables = {**os.environ, **getattr(options, "env", {}), **_variables(getattr(options, "settings", None))}
    flags = getattr(options, "extra_args", {})
    return _BARE_FLAG in flags or str(variables.get(_BARE_VARIABLE, "")).lower() not in _OFF


def _variables(settings: Any) -> dict[str, Any]:
    """The environment that settings, or a file of them, give to the program."""
    if settings is None:
        return {}
    text = str(settings).strip()
    try:
        given = json.loads(text if text.startswith("{") else Path(text).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return {}  # the program does not start with them either
    found = given.get("env") if isinstance(given, dict) else None
    return found if isinstance(found, dict) else {}


def _with_ours(hooks: Hooks, given: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The host's matchers whose callbacks may change arguments, wrapped; and ours, which see every tool."""
    merged: dict[str, list[dict[str, Any]]] = {}
    for event in ("PreToolUse", "PermissionRequest"):
        if given.get(event):
            merged[event] = [
                {**matcher, "hooks": [hooks.wrapped(event, callback) for callback in matcher.get("hooks", [])]}
                for matcher in given[event]
            ]
    ours: dict[str, Callable[..., Any]] = {
        "UserPromptSubmit": hooks.prompted,
        "PreToolUse": hooks.before,
        "PostToolUse": hooks.after,
        "PostToolUseFailure": hooks.after,
        "PostToolBatch": hooks.shown,
    }
    for event, callback in ours.items():
        matcher = {"matcher": None, "hooks": [callback], "timeout": TIMEOUT_SECONDS, "on_failure": "block"}
        merged[event] = [*merged.get(event, given.get(event) or []), matcher]
    return merged


def _serving(gate: ToolGate, original: Method) -> Method:
    """Calls of tools whose bodies run in this process; other messages pass."""

    async def handle(query: Any, server_name: str, message: dict[str, Any]) -> Any:
        if message.get("method") != "tools/call":
            return await original(query, server_name, message)
        params: dict[str, Any] = message.get("params") or {}
        execution = Execution(
            tool=str(params.get("name")),
            server=named(f"mcp__{server_name}__")[1] or f"mcp:{server_name}",
            call_id=str((params.get("_meta") or {}).get(_TOOL_USE) or ""),
            answer_id=None,
            arguments=lambda: dict(params.get("arguments") or {}),
        )

        async def body(given: dict[str, Any]) -> Any:
            return await original(query, server_name, {**message, "params": {**params, "arguments": given}})

        ran = await gate.acall(execution, body, _view)
        # A result that was given before answers the message that asks for it now.
        return {"jsonrpc": "2.0", **_answer(ran), "id": message.get("id")}

    return handle


def _running(original: Method) -> Method:
    """The server in this process, whose calls are decided before it is told of them."""

    async def run(session: Any) -> Any:
        with scoped(looping(DECIDED)):
            return await original(session)

    return run


def _view(response: dict[str, Any] | None) -> Any:
    result = (response or {}).get("result")
    return _mcp_results.view(result) if isinstance(result, dict) else (response or {}).get("error")


def _answer(ran: Ran) -> dict[str, Any]:
    """The members of a JSON-RPC response."""
    if not ran.replaced:
        return dict(ran.result or {})
    result = (ran.result or {}).get("result")
    return {"result": _mcp_results.replaced(result if isinstance(result, dict) else {}, ran)}
