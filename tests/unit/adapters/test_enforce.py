"""The one enforcement: a snapshot is decided, and nothing but the digested bytes may run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome, Reason
from aegis.enforce.enforcement import Attempt, Enforced, Enforcer, Observed
from aegis.enforce.scope import Session, session_context
from aegis.errors import InvalidCall
from support.asking import Mode, both_modes
from support.decider import ScriptedDecider, allowed, blocked, changed, held, sanitized, withheld


def enforce(decider: ScriptedDecider, attempts: Sequence[Attempt], mode: Mode, **options: Any) -> list[Enforced]:
    enforcer = Enforcer(decider, **options)
    if mode == "sync":
        return enforcer.run(enforcer.enforce(attempts))
    return asyncio.run(enforcer.arun(enforcer.enforce(attempts)))


def observe(decider: ScriptedDecider, value: Any, mode: Mode) -> Observed:
    enforcer = Enforcer(decider)
    steps = enforcer.observe([ToolResult(decision_id="d", result=value)])
    (seen,) = enforcer.run(steps) if mode == "sync" else asyncio.run(enforcer.arun(steps))
    return seen


PAY = Attempt(tool="pay", arguments={"amount": 10, "to": ["a"]}, call_id="c")


@both_modes
def test_what_runs_is_a_fresh_decode_of_what_was_decided(mode: Mode) -> None:
    arguments: dict[str, Any] = {"amount": 2**60, "to": ["a"]}
    (enforced,) = enforce(ScriptedDecider(), [Attempt(tool="pay", arguments=arguments)], mode)
    arguments["to"].append("evil")
    assert enforced.allowed
    assert enforced.arguments() == {"amount": 2**60, "to": ["a"]}
    enforced.arguments()["to"].append("evil")
    assert enforced.arguments() == {"amount": 2**60, "to": ["a"]}


@both_modes
def test_the_decider_cannot_change_the_snapshot(mode: Mode) -> None:
    def meddle(call: ToolCall) -> Decision:
        decision = allowed(call)
        call.arguments["to"].append("evil")
        return decision

    (enforced,) = enforce(ScriptedDecider(rules={"pay": meddle}), [PAY], mode)
    assert enforced.arguments() == {"amount": 10, "to": ["a"]}


@both_modes
def test_sanitised_arguments_take_the_place_of_the_snapshot(mode: Mode) -> None:
    (enforced,) = enforce(ScriptedDecider(rules={"pay": sanitized(amount=1)}), [PAY], mode)
    assert (enforced.allowed, enforced.changed, enforced.arguments()) == (True, True, {"amount": 1})


@both_modes
def test_a_refusal_names_tool_message_and_reason(mode: Mode) -> None:
    (enforced,) = enforce(ScriptedDecider(rules={"pay": blocked}), [PAY], mode)
    assert not enforced.allowed
    assert enforced.refusal.startswith("`pay` was not run: ")
    assert enforced.refusal.endswith("(reason: policy_denied)")


WRONG: dict[str, Any] = {
    "request digest of another call": lambda call: replace(allowed(call), request_digest="sha-256:0"),
    "call digest of another call": lambda call: replace(allowed(call), call_digest="sha-256:0"),
    "changed without saying so": lambda call: replace(allowed(call), outcome=Outcome.SANITIZE, arguments={"x": 1}),
    "changed into nothing": lambda call: replace(allowed(call), outcome=Outcome.SANITIZE),
    "changed into no JSON": lambda call: replace(allowed(call), outcome=Outcome.SANITIZE, arguments={"x": {1}}),
}


@both_modes
@pytest.mark.parametrize("name", WRONG)
def test_an_allow_that_does_not_bind_what_would_run_is_a_refusal(name: str, mode: Mode) -> None:
    (enforced,) = enforce(ScriptedDecider(rules={"pay": WRONG[name]}), [PAY], mode)
    assert (enforced.allowed, enforced.decision.outcome) == (False, Outcome.BLOCK)


@both_modes
@pytest.mark.parametrize("error", [RuntimeError("secret"), InvalidCall("malformed"), KeyError("x"), OSError()])
def test_every_error_is_a_refusal(error: Exception, mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    def rule(call: ToolCall) -> Decision:
        raise error

    (enforced,) = enforce(ScriptedDecider(rules={"pay": rule}), [PAY], mode)
    assert not enforced.allowed
    expected = Reason.SCHEMA_INVALID if isinstance(error, InvalidCall) else Reason.UNAVAILABLE
    assert enforced.decision.reason is expected
    assert "secret" not in caplog.text


@both_modes
@pytest.mark.parametrize("arguments", [{"x": float("nan")}, {"x": object()}, {1: 2}, {"x": "\ud800"}])
def test_arguments_that_are_no_json_are_refused_without_asking(arguments: dict[Any, Any], mode: Mode) -> None:
    decider = ScriptedDecider()
    (enforced,) = enforce(decider, [Attempt(tool="pay", arguments=arguments)], mode)
    assert not enforced.allowed
    assert decider.decided == []


@both_modes
def test_an_id_that_stands_for_another_call_is_replaced(mode: Mode) -> None:
    decider = ScriptedDecider()
    other = PAY._replace(arguments={"amount": 11})
    first, second = enforce(decider, [PAY, other], mode)
    assert first.allowed
    assert second.allowed
    assert second.arguments() == {"amount": 11}
    assert [call.call_id == "c" for call in decider.decided] == [True, False]


@both_modes
def test_the_calls_of_a_turn_are_all_decided_before_any_is_waited_for(mode: Mode) -> None:
    order: list[str] = []

    def rule(call: ToolCall) -> Decision:
        order.append(f"decide {call.tool}")
        return held(call) if call.tool != "c" else allowed(call)

    def resolve(call: ToolCall) -> Decision:
        order.append(f"wait {call.tool}")
        return allowed(call) if call.tool == "a" else blocked(call, Reason.APPROVAL_DENIED)

    decider = ScriptedDecider(rules=dict.fromkeys("abc", rule), resolve=resolve)
    outcomes = enforce(decider, [Attempt(tool=tool, arguments={}) for tool in "abc"], mode)
    assert [one.allowed for one in outcomes] == [True, False, True]
    assert order == ["decide a", "decide b", "decide c", "wait a", "wait b"]


@both_modes
def test_a_held_call_stays_refused_where_nobody_answers_or_the_host_does_not_wait(mode: Mode) -> None:
    decider = ScriptedDecider(rules={"pay": held})
    (waited,) = enforce(decider, [PAY], mode)
    assert (waited.allowed, len(decider.waited)) == (False, 1)
    decider = ScriptedDecider(rules={"pay": held}, resolve=allowed)
    (refused,) = enforce(decider, [PAY], mode, on_approval="block")
    assert (refused.allowed, len(decider.waited)) == (False, 0)


@both_modes
def test_a_call_carries_the_session_and_the_task_of_the_host(mode: Mode) -> None:
    decider = ScriptedDecider()
    with session_context(Session(name="s-1", task="answer")):
        enforce(decider, [PAY], mode, agent="bot")
    (call,) = decider.decided
    assert (call.session, call.task, call.agent) == ("s-1", "answer", "bot")


@both_modes
def test_results_are_seen_changed_or_withheld(mode: Mode) -> None:
    decider = ScriptedDecider()
    assert observe(decider, {"a": 1}, mode).value == {"a": 1}
    decider.inspect = lambda value: changed("[masked]")
    assert (observe(decider, "secret", mode).value, observe(decider, "secret", mode).changed) == ("[masked]", True)
    decider.inspect = withheld
    seen = observe(decider, "secret", mode)
    assert seen.withheld
    assert "secret" not in seen.value


@both_modes
def test_a_result_that_cannot_be_observed_is_withheld(mode: Mode) -> None:
    decider = ScriptedDecider()

    def inspect(value: Any) -> Any:
        raise RuntimeError("gone")

    decider.inspect = inspect
    assert observe(decider, "secret", mode).withheld


async def test_a_cancelled_wait_passes_the_cancellation_on() -> None:
    class Slow(ScriptedDecider):
        async def await_decision(
            self,
            call: ToolCall,
            decision: Decision,
            timeout: float | None = None,  # noqa: ASYNC109
        ) -> Decision:
            await asyncio.sleep(60)
            return allowed(call)

    enforcer = Enforcer(Slow(rules={"pay": held}))
    task = asyncio.create_task(enforcer.arun(enforcer.enforce([PAY])))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
