"""LangChain: tools whose body is an entry of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from aegis.cli.demo.provider import Call, Turn
from frameworks.drivers.langchain import FRAMEWORK, model
from frameworks.model import MAIL, agent, hooked
from support.decider import ScriptedDecider, blocked, sanitized, withheld
from support.worlds import scripted

DONE = Turn(text="done")


class Sent(BaseModel):
    """What a mail needs."""

    to: str
    subject: str = "hello"


class Sending(BaseTool):
    """What the tools have in common; nobody runs its body."""

    name: str = "send_email"
    description: str = "Send a mail."
    args_schema: Any = Sent
    note: Any = None

    def _run(self, to: str, subject: str = "hello") -> str:
        raise AssertionError("nobody runs it")


class ByRun(Sending):
    """A body in `run` and `arun`."""

    def run(self, tool_input: Any, *args: Any, **options: Any) -> Any:
        self.note(tool_input)
        return ToolMessage("sent", tool_call_id=options["tool_call_id"])

    async def arun(self, tool_input: Any, *args: Any, **options: Any) -> Any:
        return self.run(tool_input, *args, **options)


class ByInvoke(Sending):
    """A body in `invoke` and `ainvoke`."""

    def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002
        self.note(input["args"])
        return ToolMessage("sent", tool_call_id=input["id"])

    async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002
        return self.invoke(input, config, **options)


@pytest.fixture(params=[ByRun, ByInvoke])
def made(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(made: Any, mode: str, decider: ScriptedDecider, call: Call = MAIL) -> tuple[list[Any], str]:
    """What the body was given, and what the model was told."""
    ran: list[Any] = []
    with hooked(FRAMEWORK, decider), agent(FRAMEWORK, FRAMEWORK.ways[0], Turn(calls=(call,)), DONE) as world:
        asked = create_agent(model(world), tools=[made(note=ran.append)])
        given: Any = {"messages": [{"role": "user", "content": "go"}]}
        state = asked.invoke(given) if mode == "sync" else asyncio.run(asked.ainvoke(given))
        assert state["messages"][-1].content == "done"
        return ran, str(world.result_of(call))


def test_a_blocked_call_does_not_reach_an_entry_of_the_tools_own(made: Any, mode: str) -> None:
    ran, told = run(made, mode, scripted(send_email=blocked))
    assert ran == []
    assert "`send_email` was not run" in told


def test_an_entry_of_the_tools_own_is_given_what_may_run_and_is_observed(made: Any, mode: str) -> None:
    given = {"to": "safe@example.com", "subject": "checked"}
    decider = ScriptedDecider(rules={"send_email": sanitized(**given)}, inspect=withheld)
    ran, told = run(made, mode, decider)
    assert ran == [given]
    assert len(decider.decided) == 1
    assert "withheld" in told


def test_an_entry_of_the_tools_own_is_given_nothing_that_does_not_fit(made: Any, mode: str) -> None:
    decider = scripted()
    ran, told = run(made, mode, decider, Call(tool="send_email", arguments={"to": ["a"]}, id=MAIL.id))
    assert (ran, decider.decided) == ([], [])
    assert "was not run" in told
