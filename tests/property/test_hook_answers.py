"""A hook's answer never widens what its host allows, and what a host makes of new arguments is what was decided."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome
from aegis.proxies.hooks.event import HOSTS, read_event
from aegis.proxies.hooks.judge import HookAnswer, HookJudge, HookState
from support.decider import ScriptedDecider, allowed, blocked, digest_of, held

Arguments = dict[str, Any]
Wire = dict[str, Any]
_YES: Final = frozenset({"allow", "approve", "approved", "yes"})


def claude(arguments: Arguments) -> Wire:
    head = {"hook_event_name": "PreToolUse", "session_id": "s", "transcript_path": "/x", "tool_use_id": "toolu_1"}
    return {**head, "permission_mode": "default", "tool_name": "Bash", "tool_input": arguments}


def codex(arguments: Arguments) -> Wire:
    return {**claude(arguments), "turn_id": "turn_1", "model": "m"}


def gemini(arguments: Arguments) -> Wire:
    head = {"hook_event_name": "BeforeTool", "session_id": "s", "timestamp": "2026-01-01T00:00:00Z"}
    return {**head, "tool_name": "run_shell_command", "tool_input": arguments}


def cursor(arguments: Arguments) -> Wire:
    head = {"hook_event_name": "preToolUse", "conversation_id": "s", "tool_use_id": "t"}
    return {**head, "tool_name": "Shell", "tool_input": arguments}


def copilot(arguments: Arguments) -> Wire:
    return {"sessionId": "s", "timestamp": 1, "cwd": "/x", "toolName": "bash", "toolArgs": arguments}


def copilot_like_claude(arguments: Arguments) -> Wire:
    head = {"hook_event_name": "PreToolUse", "session_id": "s", "timestamp": "2026-01-01T00:00:00Z"}
    return {**head, "tool_name": "bash", "tool_input": arguments}


EVENTS: Final[dict[str, tuple[str, Callable[[Arguments], Wire]]]] = {
    "claude": ("claude", claude),
    "codex": ("codex", codex),
    "gemini": ("gemini", gemini),
    "cursor": ("cursor", cursor),
    "copilot": ("copilot", copilot),
    "copilot, spelt like claude": ("copilot", copilot_like_claude),
}


def ran(host: str, before: Arguments, answer: HookAnswer) -> Arguments | None:
    """What a host runs after an answer, by its documentation; `None` where it runs nothing."""
    if answer.code != 0:
        return None
    said: Wire = json.loads(answer.out) if answer.out else {}
    specific = said.get("hookSpecificOutput", {})
    if host in ("claude", "codex"):
        changed: Arguments = specific.get("updatedInput", before)
        return changed
    if host == "gemini":
        return {**before, **specific.get("tool_input", {})}
    if host == "cursor":
        return {**before, **said.get("updated_input", {})}
    modified: Arguments = said.get("modifiedArgs", before)
    return modified


def says_yes(value: Any) -> bool:
    """Whether an answer holds a yes anywhere, in whatever member, but for the arguments."""
    if isinstance(value, dict):
        kept = ("updatedInput", "tool_input", "updated_input", "modifiedArgs")
        return any(says_yes(inner) for name, inner in value.items() if name not in kept)
    return isinstance(value, str) and value in _YES


arguments = st.dictionaries(st.sampled_from(["command", "path", "body", "url"]), st.text(max_size=20), max_size=4)


def _sanitized(changed: Arguments) -> Callable[[ToolCall], Decision]:
    def rule(call: ToolCall) -> Decision:
        digest = digest_of(call, changed)
        return replace(allowed(call), outcome=Outcome.SANITIZE, arguments=changed, call_digest=digest)

    return rule


@settings(deadline=None)
@given(
    host=st.sampled_from(sorted(EVENTS)),
    given_=arguments,
    changed=arguments,
    outcome=st.sampled_from(["allow", "sanitize", "block", "held", "approved", "approved and changed"]),
)
def test_no_answer_widens_what_the_host_allows(host: str, given_: Arguments, changed: Arguments, outcome: str) -> None:
    name, event = EVENTS[host]
    resolve = {"approved": allowed, "approved and changed": _sanitized(changed)}.get(outcome, held)
    rule = {"allow": allowed, "sanitize": _sanitized(changed), "block": blocked}.get(outcome, held)
    wire = event(given_)
    decider = ScriptedDecider(rules={str(wire.get("tool_name") or wire["toolName"]): rule}, resolve=resolve)
    with tempfile.TemporaryDirectory() as home:
        judge = HookJudge(decider, HookState(Path(home)), wait_until=time.monotonic())
        answer = judge.answer(read_event(json.dumps(wire).encode()))
    said = json.loads(answer.out) if answer.out else {}
    specific = said.get("hookSpecificOutput", {})
    if name == "codex" and "updatedInput" in specific:
        # There it is the only word beside which new arguments count, and its approvals do not read it.
        assert specific.pop("permissionDecision") == "allow"
    assert not says_yes(said)
    runs = ran(name, given_, answer)
    if outcome in ("block", "held"):
        assert runs is None
    elif outcome in ("allow", "approved"):
        assert runs == given_
    else:
        assert runs == changed or (runs is None and not given_.keys() <= changed.keys())


def test_every_host_that_a_hook_is_installed_for_is_among_them() -> None:
    assert {name for name, _ in EVENTS.values()} == set(HOSTS)


def test_claude_code_asks_with_the_changed_arguments_in_view() -> None:
    decider = ScriptedDecider(rules={"Bash": _sanitized({"command": "rm -rf ./src; curl -H [masked] x"})})
    with tempfile.TemporaryDirectory() as home:
        judge = HookJudge(decider, HookState(Path(home)), wait_until=time.monotonic())
        answer = judge.answer(read_event(json.dumps(claude({"command": "rm -rf ./src; curl -H secret x"})).encode()))
    told = json.loads(answer.out)["hookSpecificOutput"]
    assert told["permissionDecision"] == "ask"
    assert told["permissionDecisionReason"]
    assert told["updatedInput"] == {"command": "rm -rf ./src; curl -H [masked] x"}


async def test_what_a_person_released_where_the_model_proposed_it_is_not_asked_again() -> None:
    arguments = {"command": "rm -rf ./src"}
    released = {("toolu_1", digest_of(ToolCall(tool="Bash", arguments=arguments))): "decision-1"}
    with tempfile.TemporaryDirectory() as home:
        decider = ScriptedDecider(rules={"Bash": held})
        judge = HookJudge(
            decider,
            HookState(Path(home)),
            wait_until=time.monotonic(),
            released=lambda call_id, digest: released.get((call_id, digest)),
        )
        same = await judge.aanswer(read_event(json.dumps(claude(arguments)).encode()))
        other = await judge.aanswer(read_event(json.dumps(claude({"command": "rm -rf ./docs"})).encode()))
    assert (same.code, other.code) == (0, 2)
    assert [call.arguments for call in decider.decided] == [{"command": "rm -rf ./docs"}]
