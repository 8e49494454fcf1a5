"""smolagents: what code may reach, what it is told, and which values the gate sees."""

from __future__ import annotations

import json
from typing import Any

import pytest
from smolagents import CodeAgent, PythonInterpreterTool, ToolCallingAgent
from smolagents.local_python_executor import LocalPythonExecutor

from aegis.cli.demo.provider import Call, Turn
from aegis.core.decision import ResultDecision
from aegis.enforce.scope import Session, session_context
from frameworks.conftest import framework
from frameworks.drivers.smolagents import ENDED, code_agent, model, tools, written
from frameworks.model import Agent, agent, hooked
from support.decider import ScriptedDecider, allowed, blocked, changed, seen, withheld
from support.worlds import scripted

MAIL = "send_email(to='a@example.com')"
SECRET = "the secret"


def ran(decider: ScriptedDecider, *code: str) -> Agent:
    """The world after an agent ran these pieces of code, a turn each."""
    turns = [*map(written, code), ENDED]
    with hooked(framework(), decider), agent(framework(), framework().ways[0], *turns) as world:
        assert str(code_agent(world).run("go")) == "done"
    return world


def told(world: Agent) -> str:
    """Everything that the model was told after its first answer."""
    return json.dumps([one.body["messages"][2:] for one in world.asked])


@pytest.mark.parametrize(
    "reach",
    [
        "send_email.forward('a@example.com')",
        "getattr(send_email, 'forward')('a@example.com')",
        "type(send_email).forward('a@example.com')",
        "[one for one in [send_email]][0].forward('a@example.com')",
        MAIL,
    ],
)
def test_code_cannot_reach_the_body_of_a_blocked_tool(reach: str) -> None:
    assert ran(scripted(send_email=blocked), reach).ran == []


def test_code_cannot_reach_the_tools_of_a_managed_agent_past_its_call() -> None:
    decider = scripted(delegate=blocked)
    turns = [written("delegate.run('go')"), written("delegate.tools['send_email']('a')"), ENDED]
    with hooked(framework(), decider), agent(framework(), framework().ways[0], *turns) as world:
        inner = ToolCallingAgent(
            tools=tools(world), model=model(world), verbosity_level=0, name="delegate", description="d"
        )
        outer = CodeAgent(tools=[], managed_agents=[inner], model=model(world), verbosity_level=0, max_steps=4)
        assert str(outer.run("go")) == "done"
    assert world.ran == []
    assert {call.tool for call in decider.decided} == {"python_interpreter"}


def test_blocked_code_runs_nothing_and_the_model_is_told() -> None:
    world = ran(
        scripted(python_interpreter=lambda call: blocked(call) if "mail" in str(call.arguments) else allowed(call)),
        MAIL,
    )
    assert world.ran == []
    assert "`python_interpreter` was not run" in told(world)


def test_calls_of_code_with_a_time_limit_belong_to_the_session() -> None:
    decider = scripted()
    with session_context(Session(name="s-1")):
        ran(decider, MAIL)
    assert [(call.tool, call.session) for call in decider.decided[:2]] == [
        ("python_interpreter", "s-1"),
        ("send_email", "s-1"),
    ]


def _judging(bad: ResultDecision) -> ScriptedDecider:
    decider = scripted()
    decider.inspect = lambda value: bad if SECRET in str(value) else seen(value)
    return decider


MASKED = changed({"output": None, "error": "it failed", "logs": "[masked]"})


@pytest.mark.parametrize("bad", [MASKED, withheld("")], ids=["changed", "withheld"])
@pytest.mark.parametrize(
    "end", ["", "\n1 / 0", "\nraise ValueError('the ' + 'secret')"], ids=["ends", "fails", "raises"]
)
def test_what_code_prints_is_observed_whether_it_fails_or_not(bad: ResultDecision, end: str) -> None:
    world = ran(_judging(bad), f"print('the ' + 'secret'){end}", "nothing_of_this_name()", "1 / 0")
    assert SECRET not in told(world)
    if bad is MASKED:
        assert "[masked]" in told(world)


def test_what_failing_code_printed_is_told_where_nothing_is_wrong_with_it() -> None:
    assert "all is well" in told(ran(scripted(), "print('all is ' + 'well')\n1 / 0"))


def test_an_executor_of_an_unknown_kind_runs_nothing() -> None:
    class Foreign:
        def __init__(self) -> None:
            self._own = LocalPythonExecutor([])

        def __getattr__(self, name: str) -> Any:
            return getattr(self._own, name)

        def __call__(self, code: str) -> Any:
            return self._own(code)

    with hooked(framework(), scripted()), agent(framework(), framework().ways[0], written(MAIL), ENDED) as world:
        made = CodeAgent(tools=tools(world), model=model(world), verbosity_level=0, executor=Foreign(), max_steps=2)
        with pytest.raises(Exception, match="PythonExecutor"):
            made.run("go")
    assert world.ran == []


def test_the_interpreter_as_a_tool_is_decided_like_the_code_of_an_agent() -> None:
    decider = scripted()
    calls = (Call(tool="python_interpreter", arguments={"code": "1 + 1"}, id="call_code_0123456789"),)
    with (
        hooked(framework(), decider),
        agent(framework(), framework().ways[0], Turn(calls=calls), Turn(text="done")) as w,
    ):
        made = ToolCallingAgent(tools=[PythonInterpreterTool()], model=model(w), verbosity_level=0)
        assert str(made.run("go")) == "done"
    assert [(call.tool, call.arguments) for call in decider.decided] == [("python_interpreter", {"code": "1 + 1"})]


def test_the_gate_sees_the_value_of_a_variable_and_not_its_name() -> None:
    decider = scripted()
    calls = (Call(tool="send_email", arguments={"to": "customer"}, id="call_mail_0123456789"),)
    with (
        hooked(framework(), decider),
        agent(framework(), framework().ways[0], Turn(calls=calls), Turn(text="done")) as w,
    ):
        made = ToolCallingAgent(tools=tools(w), model=model(w), verbosity_level=0)
        assert str(made.run("go", additional_args={"customer": "ann@example.com"})) == "done"
    (call,) = decider.decided
    assert call.arguments["to"] == "ann@example.com"
    assert w.ran == [("send_email", {"to": "ann@example.com", "subject": "hello"})]
