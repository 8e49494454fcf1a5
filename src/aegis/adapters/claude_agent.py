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

from aegis.core.bounded import Bounded
from aegis.core.canonical import canonical
from aegis.enforce.enforcement import Enforced, Enforcer, log
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution, Judged, RunnerGate
from aegis.enforce.scope import DECIDED, calling, looping
from aegis.enforce.tools import Ran, ToolGate, mcp_replaced, mcp_view
from aegis.errors import UnhookedFramework

# The callbacks that the Claude Agent SDK's program asks around every tool that it executes itself.

Output = dict[str, Any]
Callback = Callable[..., Any]

MAX_CALLS: Final = 10_000
_SUB_AGENTS: Final = frozenset({"Agent", "Task"})  # tools of the program itself, which have a sub-agent go on
_WITHHELD: Final = "the result was withheld: it could not be checked"
_FAILED: Final = "the call was not run: it could not be decided"


def named(tool: str) -> tuple[str, str | None]:
    """A tool's own name, and its server: the program puts the server of an MCP tool in front."""
    server, _, name = tool.removeprefix("mcp__").partition("__")
    if tool.startswith("mcp__") and server and name:
        return name, f"mcp:{server}"
    return tool, None


class Hooks:
    """The callbacks of one conversation. `inside` names the MCP servers whose tools are decided in this process."""

    def __init__(self, gate: RunnerGate, inside: frozenset[str]) -> None:
        self._gate = gate
        self._inside = frozenset(f"mcp:{name}" for name in inside)
        # What may run of each call, by its id; several where the host changed the arguments on the way.
        self._allowed: Bounded[str, list[tuple[Execution, Enforced]]] = Bounded(MAX_CALLS, 0)
        # What must not reach the model of each call, and what stands in its place.
        self._changed: Bounded[str, tuple[Any, Judged]] = Bounded(MAX_CALLS, 0)
        self._asked = False  # whether the program has ever asked one of these callbacks

    async def prompted(self, event: dict[str, Any], _id: str | None, _context: Any) -> Output:
        """`UserPromptSubmit`, which comes before a model is asked for the first time."""
        self._asked = True
        said = event.get("prompt")
        if isinstance(said, str):
            enforcer = self._gate.enforcer
            await enforcer.arun(enforcer.say([said]))
        return {}

    def unasked(self, message: dict[str, Any]) -> str:
        """The tool that a model's message calls though the program asks no callback: it runs without a decision."""
        content = (message.get("message") or {}).get("content") if message.get("type") == "assistant" else None
        if self._asked or not isinstance(content, list):
            return ""
        called = (str(block.get("name")) for block in content if block.get("type") == "tool_use")
        return next((tool for tool in called if named(tool)[1] not in self._inside), "")

    async def before(self, event: dict[str, Any], _id: str | None, _context: Any) -> Output:
        """`PreToolUse`: a call that may run is left to the host's own permissions."""
        self._asked = True
        try:
            if named(event["tool_name"])[1] in self._inside:
                return {}
            outcome = await self._decided(event["tool_name"], event["tool_use_id"], event["tool_input"])
        except Exception as error:
            log.warning("a hook refused a call because it failed: %s", type(error).__name__)
            return _denied("PreToolUse", _FAILED)
        if isinstance(outcome, str):
            return _denied("PreToolUse", outcome)
        changed = {"updatedInput": outcome.arguments()} if outcome.changed else {}
        return _specific("PreToolUse", **changed) if changed else {}

    async def after(self, event: dict[str, Any], _id: str | None, _context: Any) -> Output:
        """`PostToolUse` and `PostToolUseFailure`: what the model may see of the result."""
        name, call_id = event["hook_event_name"], str(event.get("tool_use_id"))
        result = event["error"] if name == "PostToolUseFailure" else event.get("tool_response")
        try:
            if named(event["tool_name"])[1] in self._inside:
                return {}
            judged = await self._judged(event["tool_name"], call_id, event["tool_input"], result)
        except Exception as error:
            log.warning("a hook withheld a result because it failed: %s", type(error).__name__)
            judged = Judged(seen=_WITHHELD, changed=True, withheld=True)
        if not judged.changed:
            return {}
        self._changed.put(call_id, (result, judged))
        if name == "PostToolUseFailure":
            return {}  # cannot be replaced: the run ends when the turn's results are shown
        return _specific(name, updatedToolOutput=_shaped(event["tool_name"], result, judged))

    async def shown(self, event: dict[str, Any], _id: str | None, _context: Any) -> Output:
        """`PostToolBatch`: the results as the model is about to see them; the run ends if one must not be seen."""
        try:
            for call in event["tool_calls"]:
                changed = self._changed.get(str(call["tool_use_id"]))
                if changed is not None and _leaks(*changed, call.get("tool_response")):
                    return {"continue_": False, "stopReason": str(_notice(changed[1]))}
        except Exception as error:
            log.warning("a hook ended a run because it failed: %s", type(error).__name__)
            return {"continue_": False, "stopReason": _WITHHELD}
        return {}

    def wrapped(self, event_name: str, callback: Callback) -> Callback:
        """A callback of the host: arguments that it changes are decided like those of the model."""

        async def run(event: dict[str, Any], tool_use_id: str | None, context: Any) -> Any:
            output = await callback(event, tool_use_id, context)
            specific: dict[str, Any] = (output.get("hookSpecificOutput") or {}) if isinstance(output, dict) else {}
            holder = specific.get("decision") if event_name == "PermissionRequest" else specific
            if not isinstance(holder, dict) or holder.get("updatedInput") is None:
                return output
            if named(event["tool_name"])[1] in self._inside:
                return output
            outcome = await self._decided(event["tool_name"], tool_use_id or "", holder["updatedInput"])
            if isinstance(outcome, str):
                return _denied(event_name, outcome)
            changed = {**holder, "updatedInput": outcome.arguments()}
            told = {**specific, "decision": changed} if event_name == "PermissionRequest" else changed
            return {**output, "hookSpecificOutput": told}

        return run

    def permission(self, callback: Callback) -> Callback:
        """The host's `can_use_tool`: arguments that it changes are decided like those of the model."""

        async def can_use_tool(tool: str, given: dict[str, Any], context: Any) -> Any:
            answer = await callback(tool, given, context)
            changed = getattr(answer, "updated_input", None)
            if changed is None or named(tool)[1] in self._inside:
                return answer
            outcome = await self._decided(tool, getattr(context, "tool_use_id", None) or "", changed)
            if isinstance(outcome, str):
                from claude_agent_sdk import PermissionResultDeny

                return PermissionResultDeny(message=outcome)
            answer.updated_input = outcome.arguments()
            return answer

        return can_use_tool

    async def _decided(self, tool: str, call_id: str, arguments: dict[str, Any]) -> Enforced | str:
        name, server = named(tool)
        known = self._find(call_id, arguments)
        if known is not None:
            return known[1]
        execution = Execution(
            tool=name,
            server=server,
            call_id=call_id,
            answer_id=None,
            arguments=lambda: arguments,
            handoff=server is None and name in _SUB_AGENTS,
        )
        outcome = await self._gate.enforcer.arun(self._gate.before(execution))
        if not isinstance(outcome, str):
            self._allowed.put(call_id, [*(self._allowed.get(call_id) or []), (execution, outcome)])
        return outcome

    async def _judged(self, tool: str, call_id: str, arguments: dict[str, Any], result: Any) -> Judged:
        found = self._find(call_id, arguments)
        if found is None:
            # Other arguments ran than were decided. The gate says whether it would have let them.
            outcome = await self._decided(tool, call_id, arguments)
            found = None if isinstance(outcome, str) or outcome.changed else self._find(call_id, arguments)
        if found is None:
            self._gate.enforcer.uncovered(named(tool)[0])
            return Judged(seen=_WITHHELD, changed=True, withheld=True)
        execution, enforced = found
        return await self._gate.enforcer.arun(self._gate.judged(execution, enforced, result, _seen))

    def _find(self, call_id: str, arguments: dict[str, Any]) -> tuple[Execution, Enforced] | None:
        """The decision under which exactly these arguments run."""
        body = canonical(arguments)
        for execution, enforced in self._allowed.get(call_id) or ():
            if enforced.body == body:
                return execution, enforced
        return None


def _seen(result: Any) -> Any:
    """What of a result is judged: the text of one that is nothing else."""
    if (
        isinstance(result, list)
        and len(result) == 1
        and isinstance(result[0], dict)
        and result[0].get("type") == "text"
    ):
        return result[0].get("text")
    return result


def _shaped(tool: str, result: Any, judged: Judged) -> Any:
    """What may be seen, in the form that the tool's result has: the program takes no other for its own tools."""
    if named(tool)[1] is not None:
        return judged.seen if isinstance(judged.seen, (str, list)) else [{"type": "text", "text": str(judged.seen)}]
    return _filled(result, str(judged.seen)) if judged.withheld else judged.seen


def _filled(value: Any, notice: str) -> Any:
    """A value of the same form that says nothing but the notice."""
    if isinstance(value, str):
        return notice
    if isinstance(value, dict):
        return {name: _filled(one, notice) for name, one in value.items()}
    return [] if isinstance(value, list) else value


def _leaks(result: Any, judged: Judged, shown: Any) -> bool:
    """Whether the model is about to see what it must not: the program kept the result that it was to replace.

    True as well where that cannot be told, because the program shows the result in a form that is not known.
    """
    lines = _lines(shown)
    if judged.withheld:
        return not _lines(judged.seen) <= lines
    before, after = _lines(result), _lines(judged.seen)
    return bool((before - after) & lines) or not after - before <= lines


def _lines(value: Any) -> set[str]:
    """The lines of all text in a value, without the numbers that the program puts in front of some."""
    found = {_without_number(line).strip() for text in _strings(value) for line in text.splitlines()}
    return found - {""}


def _without_number(line: str) -> str:
    number, tab, rest = line.partition("\t")
    number = number.lstrip(" ")
    return rest if tab and number.isascii() and number.isdigit() else line


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _strings(one)]
    return [text for one in value for text in _strings(one)] if isinstance(value, list) else []


def _notice(judged: Judged) -> Any:
    return judged.seen if judged.withheld else _WITHHELD


def _specific(event: str, **members: Any) -> Output:
    return {"hookSpecificOutput": {"hookEventName": event, **members}}


def _denied(event: str, reason: str) -> Output:
    if event == "PermissionRequest":
        return _specific(event, decision={"behavior": "deny", "message": reason})
    return _specific(event, permissionDecision="deny", permissionDecisionReason=reason)


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

    patches.methods(
        "claude_agent_sdk._internal.query",
        "Query",
        initialize=lambda original: _initializing(runner, original),
        start=lambda original: _starting(enforcer, original),
        _handle_sdk_mcp_request=lambda original: _serving(gate, original),
    )
    # The server in this process, whose calls are decided before it is told of them.
    patches.methods("claude_agent_sdk._internal.sdk_mcp_bridge", "_Session", _run=calling(lambda _: looping(DECIDED)))
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


def _view(response: dict[str, Any] | None) -> Any:
    result = (response or {}).get("result")
    return mcp_view(result) if isinstance(result, dict) else (response or {}).get("error")


def _answer(ran: Ran) -> dict[str, Any]:
    """The members of a JSON-RPC response."""
    if not ran.replaced:
        return dict(ran.result or {})
    result = (ran.result or {}).get("result")
    return {"result": mcp_replaced(result if isinstance(result, dict) else {}, ran)}
