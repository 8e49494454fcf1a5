"""What a host is told, in its own words: the exit code, what goes to standard output, what to standard error.

Exit 2 with the reason on standard error blocks in every host; any other failure would let the call run. A yes of Aegis
is no yes of the host: what its own rules would ask a person about, they still ask.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from aegis.proxies.hooks.event import HookEvent

BLOCK: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class HookAnswer:
    """What the hook's process says and how it ends."""

    code: int = 0
    out: str = ""
    err: str = ""


def refused(reason: str, event: HookEvent | None = None) -> HookAnswer:
    """The call does not run, and the model is told why; some hosts take the reason from standard output."""
    out = ""
    if event is not None and event.dialect == "copilot" and event.phase == "before":
        out = json.dumps({"permissionDecision": "deny", "permissionDecisionReason": reason})
    return HookAnswer(code=BLOCK, out=out, err=f"{reason}\n")


def passed(event: HookEvent) -> HookAnswer:
    """Nothing is said against the call or the result: the host goes on with its own rules, as without this hook."""
    return HookAnswer(out="{}" if event.dialect == "cursor" else "")


def patched(event: HookEvent, arguments: dict[str, Any]) -> HookAnswer:
    """The call runs with other arguments, if the host lets it; refused where the host cannot be told of them."""
    if event.dialect in _MERGING and not event.arguments.keys() <= arguments.keys():
        return refused(f"`{event.tool}` was not run: its host cannot take an argument away", event)
    return HookAnswer(out=json.dumps(_PATCHED[event.dialect](event, arguments)))


def _claude(event: HookEvent, arguments: dict[str, Any]) -> dict[str, Any]:
    # `allow` would switch off the question that the host asks (code.claude.com/docs/en/hooks); without a decision some
    # versions leave the input as it was.
    output = {
        "hookEventName": event.name,
        "permissionDecision": "ask",
        "permissionDecisionReason": "Aegis changed the arguments of this call; these are the ones that run",
        "updatedInput": arguments,
    }
    return {"hookSpecificOutput": output}


def _codex(event: HookEvent, arguments: dict[str, Any]) -> dict[str, Any]:
    # New input counts only beside `allow`, which says nothing to the approvals and the sandbox of this host; it takes
    # any other answer for a failed hook and runs the call as it was (codex-rs/hooks/src/engine/output_parser.rs).
    output = {"hookEventName": event.name, "permissionDecision": "allow", "updatedInput": arguments}
    return {"hookSpecificOutput": output}


def _gemini(event: HookEvent, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event.name, "tool_input": arguments}}


def _cursor(_: HookEvent, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"updated_input": arguments}


def _copilot(_: HookEvent, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"modifiedArgs": arguments}


_PATCHED: Final = {"claude": _claude, "codex": _codex, "gemini": _gemini, "cursor": _cursor, "copilot": _copilot}
# Hosts that lay new arguments over the old ones, or do not say that they do not: what is left out would still run.
_MERGING: Final = frozenset({"gemini", "cursor"})


def replaced(event: HookEvent, notice: str, value: Any) -> HookAnswer:
    """The model sees `value` in place of the tool's result, and `notice` says why."""
    return HookAnswer(out=json.dumps(_REPLACED[event.dialect](event, notice, value)))


def _claude_result(event: HookEvent, notice: str, value: Any) -> dict[str, Any]:
    output = {"hookEventName": event.name, "updatedToolOutput": value, "updatedMCPToolOutput": value}
    return {"decision": "block", "reason": notice, "hookSpecificOutput": output}


def _gemini_result(event: HookEvent, notice: str, value: Any) -> dict[str, Any]:
    # A denied result is hidden, and the reason stands in its place.
    text = value if isinstance(value, str) else json.dumps(value)
    return {"decision": "deny", "reason": f"{notice}\n{text}"}


def _cursor_result(event: HookEvent, notice: str, value: Any) -> dict[str, Any]:
    return {"updated_mcp_tool_output": value, "additional_context": notice}


def _copilot_result(event: HookEvent, notice: str, value: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value)
    return {"modifiedResult": {"resultType": "success", "textResultForLlm": text}, "additionalContext": notice}


_REPLACED: Final = {
    "claude": _claude_result,
    "codex": _claude_result,
    "gemini": _gemini_result,
    "cursor": _cursor_result,
    "copilot": _copilot_result,
}


def blanked(value: Any, notice: str) -> Any:
    """`value` with its shape kept and its texts gone; the first of them is the notice."""
    left = [notice]

    def blank(inner: Any) -> Any:
        if isinstance(inner, str):
            return left.pop() if left else ""
        if isinstance(inner, list):
            return [blank(item) for item in inner]
        if isinstance(inner, dict):
            # A member that only says what kind of value this is keeps the shape valid.
            return {name: item if name == "type" else blank(item) for name, item in inner.items()}
        return inner

    found = blank(value)
    return notice if left else found
