"""A body runs with exactly what was decided, or not at all; and what ran beside that does not reach the model."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.core.canonical import canonical
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Patches
from aegis.enforce.runner import Execution
from aegis.enforce.scope import OpenCalls
from aegis.enforce.tools import Ran, ToolGate
from aegis.enforce.turn import ProviderTurn
from aegis.enforce.witness import by_name, watch, witnessed
from aegis.wire.openai_chat import OpenAIChat
from support.decider import ScriptedDecider

values = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4) | st.lists(st.integers(0, 3), max_size=3)
arguments = st.fixed_dictionaries({"to": values, "subject": values})
ways = st.sampled_from(["method", "function", "coroutine"])


class Tool:
    """A tool of some framework: a method that runs its body, and the functions that it holds."""

    name = "send_email"

    def __init__(self, ran: list[dict[str, Any]]) -> None:
        self.ran = ran

        def func(to: Any, subject: Any = "hello", context: Any = None) -> str:
            ran.append({"to": to, "subject": subject})
            return "what it said"

        async def coroutine(to: Any, subject: Any = "hello", context: Any = None) -> str:
            return func(to, subject, context)

        self.func = func
        self.coroutine = coroutine

    def body(self, **given: Any) -> str:
        return self.func(**given)


def run(way: str, decided: dict[str, Any], runs: list[dict[str, Any]]) -> tuple[Ran, list[dict[str, Any]], list[str]]:
    """One decided call, in whose execution a wrapper runs the body with each of `runs`: how it ended, ran, alarms."""
    ran: list[dict[str, Any]] = []
    alarms: list[str] = []
    enforcer = Enforcer(ScriptedDecider(), on_uncovered=lambda tool, _: alarms.append(tool))
    gate, patches, tool = ToolGate(enforcer, Memory()), Patches(), Tool(ran)
    execution = Execution(tool="send_email", call_id="call", answer_id=None, arguments=lambda: decided)

    async def wrapper(_: dict[str, Any]) -> Any:
        results: list[Any] = []
        for one in runs:
            try:
                if way == "coroutine":
                    results.append(await tool.coroutine(**one, context=object()))
                else:
                    results.append((tool.body if way == "method" else tool.func)(**one, context=object()))
            except Exception as error:
                results.append(str(error))  # a wrapper that hides what went wrong
        return "; ".join(results)

    try:
        patches.replace(Tool, "body", witnessed(enforcer, lambda one, *_: one.name, by_name))
        watch(enforcer, patches, Tool, "func", "coroutine", name_of=lambda one: one.name)
        return asyncio.run(gate.acall(execution, wrapper)), ran, alarms
    finally:
        patches.undo()


@settings(deadline=None)
@given(way=ways, decided=arguments, runs=st.lists(arguments, min_size=1, max_size=3))
def test_a_body_runs_with_exactly_what_was_decided_or_not_at_all(
    way: str, decided: dict[str, Any], runs: list[dict[str, Any]]
) -> None:
    outcome, ran, alarms = run(way, decided, runs)
    others = [one for one in runs if canonical(one) != canonical(decided)]
    assert all(canonical(one) == canonical(decided) for one in ran)
    assert outcome.refused == bool(others)
    assert alarms == ["send_email"] * len(others)
    assert ("what it said" in str(outcome.seen)) == (not others)


@settings(deadline=None)
@given(way=ways, decided=arguments)
def test_what_was_decided_runs_without_an_alarm(way: str, decided: dict[str, Any]) -> None:
    outcome, ran, alarms = run(way, decided, [decided, dict(decided)])
    assert (len(ran), alarms, outcome.refused) == (2, [], False)


@settings(deadline=None)
@given(given_=arguments)
def test_a_body_without_any_decision_is_an_alarm_and_unhooked_it_is_none(given_: dict[str, Any]) -> None:
    ran: list[dict[str, Any]] = []
    alarms: list[str] = []
    patches, tool = Patches(), Tool(ran)
    enforcer = Enforcer(ScriptedDecider(), on_uncovered=lambda one, _: alarms.append(one))
    watch(enforcer, patches, Tool, "func", name_of=lambda one: one.name)
    taken = tool.func
    assert tool.func is taken
    taken(**given_)
    patches.undo()
    taken(**given_)
    tool.func(**given_)
    assert alarms == ["send_email"]
    assert ran == [given_] * 3
    assert "func" not in vars(Tool)


@settings(deadline=None)
@given(
    said=st.text(min_size=1, max_size=20),
    beside=st.sampled_from(["", "send_email", "read_file"]),
    judged=st.booleans(),
)
def test_of_an_open_call_nothing_unjudged_reaches_the_model_after_an_alarm(
    said: str, beside: str, judged: bool
) -> None:
    enforcer, memory = Enforcer(ScriptedDecider()), Memory()
    asked = {"id": "call_mail_0123456789", "type": "function"}
    call = {**asked, "function": {"name": "send_email", "arguments": "{}"}}
    answer = {"id": "a", "choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [call]}}]}

    def turn() -> ProviderTurn:
        return ProviderTurn(enforcer, memory, OpenAIChat(), deferred=frozenset({"send_email"}))

    assert enforcer.run(turn().settled(answer)) == answer
    if judged:
        execution = Execution(tool="send_email", call_id=asked["id"], answer_id=None, arguments=dict)
        ToolGate(enforcer, memory).call(execution, lambda _: said)
    if beside:
        enforcer.uncovered(beside)
    request = {"messages": [{"role": "tool", "tool_call_id": asked["id"], "content": said}]}
    first, second = enforcer.run(turn().amended(request)), enforcer.run(turn().amended(request))
    assert first == second
    if beside == "send_email" and not judged:
        assert "withheld" in first["messages"][0]["content"]
    else:
        assert first == request


def test_open_calls_are_bounded_and_marked_by_session_and_tool() -> None:
    calls = OpenCalls(max_calls=2)
    for number in range(3):
        calls.opened("s", f"call{number}", "send_email")
    calls.opened("other", "call2", "send_email")
    calls.ran_beside("s", "send_email")
    assert [calls.closed("s", f"call{number}") for number in range(3)] == [False, False, True]
    assert not calls.closed("other", "call2")
    assert not calls.closed("s", "call2")
