"""Claude Agent SDK: tools that the program executes itself, and arguments that the host changes on the way."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, PermissionResultAllow, query

from aegis.cli.demo.provider import Call, Turn
from aegis.core.decision import ResultDecision
from aegis.errors import UnhookedFramework
from frameworks.drivers.claude_agent import FRAMEWORK, Told, options
from frameworks.model import agent, hooked
from support.decider import ScriptedDecider, allowed, blocked, changed, digest_of, sanitized, withheld
from support.worlds import World, scripted

SECRET = "hello-secret"


def shell(command: str) -> Call:
    return Call(tool="Bash", arguments={"command": command}, id="toolu_shell_0123456789")


def run(decider: ScriptedDecider, call: Call, **more: Any) -> Told:
    """The world after a run of the program with one call of one of its own tools."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = str(Path(folder).resolve())
        (Path(home) / "secret.txt").write_text(f"{SECRET}\nopen\n")

        async def ask(world: World) -> None:
            given: ClaudeAgentOptions = options(world, home, **{"allowed_tools": ["Bash", "Read"], **more})
            async for _ in query(prompt="go", options=given):
                continue

        way = FRAMEWORK.ways[0]
        with hooked(FRAMEWORK, decider), agent(FRAMEWORK, way, Turn(calls=(call,)), Turn(text="done")) as world:
            asyncio.run(ask(world))
        assert isinstance(world, Told)
        return world


def told(world: World) -> str:
    return json.dumps([one.body["messages"] for one in world.asked])


def results(world: World, call: Call) -> str:
    assert isinstance(world, Told)
    return str(world.result_of(call))


def test_a_command_of_the_program_is_decided_and_its_result_observed() -> None:
    decider, call = scripted(), shell("echo open")
    world = run(decider, call)
    assert [(one.tool, one.arguments) for one in decider.decided] == [("Bash", {"command": "echo open"})]
    assert results(world, call) == "open"
    assert decider.observed[0].result["stdout"] == "open"


def test_a_blocked_command_does_not_run(tmp_path: Path) -> None:
    call = shell(f"touch {tmp_path}/ran")
    assert "`Bash` was not run" in results(run(scripted(Bash=blocked), call), call)
    assert not (tmp_path / "ran").exists()


def _masked(value: Any) -> ResultDecision:
    return changed(json.loads(json.dumps(value).replace(SECRET, "[masked]")))


def test_a_masked_result_of_the_program_takes_its_place() -> None:
    decider, call = scripted(), shell(f"printf '{SECRET}\\nopen'")
    decider.inspect = _masked
    assert results(run(decider, call), call) == "[masked]\nopen"


def test_a_masked_file_takes_its_place() -> None:
    decider, call = scripted(), Call(tool="Read", arguments={"file_path": "secret.txt"}, id="toolu_read_01234567890")
    decider.inspect = _masked
    text = results(run(decider, call), call)
    assert "[masked]" in text
    assert SECRET not in text


@pytest.mark.parametrize(
    "call",
    [
        shell(f"printf {SECRET[:5]}; printf -- {SECRET[5:]}"),
        shell(f"printf {SECRET[:5]}; printf -- {SECRET[5:]}; exit 3"),
        Call(tool="Read", arguments={"file_path": "secret.txt"}, id="toolu_read_01234567890"),
    ],
    ids=["command", "command that fails", "file"],
)
def test_a_withheld_result_never_reaches_the_model(call: Call) -> None:
    decider = scripted()
    decider.inspect = withheld
    assert SECRET not in told(run(decider, call))
    assert decider.observed


def test_an_observer_that_fails_withholds() -> None:
    decider = scripted()

    def fail(value: Any) -> ResultDecision:
        raise RuntimeError("gone")

    decider.inspect = fail
    assert SECRET not in told(run(decider, shell(f"printf {SECRET[:5]}; printf -- {SECRET[5:]}")))


async def _rewrite(event: Any, tool_use_id: str | None, context: Any) -> Any:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"command": "echo changed"}}}


async def _permit(name: str, given: dict[str, Any], context: Any) -> Any:
    return PermissionResultAllow(updated_input={"command": "echo changed"})


HOSTS: dict[str, dict[str, Any]] = {
    "a hook": {"hooks": {"PreToolUse": [HookMatcher(hooks=[_rewrite])]}},
    "a permission": {"can_use_tool": _permit, "allowed_tools": []},
}


@pytest.mark.parametrize("host", HOSTS)
def test_what_the_host_makes_of_the_arguments_is_decided_too(host: str) -> None:
    decider, call = scripted(), shell("rm -r nothing-here-to-be-removed")
    run(decider, call, **HOSTS[host])
    assert {"command": "echo changed"} in [one.arguments for one in decider.decided]
    observed = {one.decision_id for one in decider.observed}
    (ran,) = [one for one in decider.decided if f"d-{one.call_id}" in observed]
    assert ran.arguments == {"command": "echo changed"}


@pytest.mark.parametrize("host", HOSTS)
def test_what_the_host_makes_of_the_arguments_does_not_run_when_it_is_blocked(host: str) -> None:
    call = shell("rm -r nothing-here-to-be-removed")
    decider = ScriptedDecider(
        rules={"Bash": lambda one: blocked(one) if "changed" in str(one.arguments) else allowed(one)}
    )
    world = run(decider, call, **HOSTS[host])
    assert "`Bash` was not run" in results(world, call)
    assert decider.observed == []


def test_sanitised_arguments_are_what_the_program_runs() -> None:
    rule, call = sanitized(command="echo safe"), shell("echo unsafe")
    decider = scripted(Bash=rule)
    assert results(run(decider, call), call) == "safe"
    (asked,) = decider.decided
    assert rule(asked).call_digest == digest_of(asked, {"command": "echo safe"})


BARE: dict[str, dict[str, Any]] = {
    "a flag": {"extra_args": {"bare": None}},
    "settings": {"settings": json.dumps({"env": {"CLAUDE_CODE_SIMPLE": "1"}})},
}


@pytest.mark.parametrize("bare", BARE)
def test_a_program_that_asks_no_hooks_is_not_started(bare: str) -> None:
    with pytest.raises(UnhookedFramework):
        run(scripted(), shell("echo open"), **BARE[bare])


def test_a_program_that_turns_out_to_ask_no_hooks_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing that can be seen before tells that it asks none.
    monkeypatch.setattr("aegis.adapters.claude_agent._is_bare", lambda _: False)
    decider = scripted()
    with pytest.raises(UnhookedFramework):
        run(decider, shell("echo open"), **BARE["a flag"])
    assert decider.decided == []
