"""Pydantic AI: calls that a run hands to the host's code, and the form of a final answer."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, DeferredToolResults, ExternalToolset
from pydantic_ai.tools import Tool, ToolDefinition

from aegis.cli.demo.wire import Call, Turn
from frameworks.drivers.pydantic_ai import FRAMEWORK, model
from frameworks.model import MAIL, agent, hooked
from support.decider import ScriptedDecider, blocked, sanitized, withheld
from support.worlds import World, scripted

ASKED = Turn(calls=(MAIL,))
DONE = Turn(text="done")
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}


def external(world: World) -> Any:
    """An agent whose host sends the mails."""
    tools = ExternalToolset([ToolDefinition(name="send_email", parameters_json_schema=SCHEMA)])
    return Agent(model(world), toolsets=[tools], output_type=[str, DeferredToolRequests])


def deferring(world: World) -> Any:
    """An agent with a tool that its validator hands to the host."""

    def send_email(to: str) -> str:
        raise AssertionError("the host runs it")

    def validate(_: Any, to: str) -> None:
        raise CallDeferred()

    tool: Any = Tool(send_email, takes_ctx=False, args_validator=validate)
    return Agent(model(world), tools=[tool], output_type=[str, DeferredToolRequests])


@pytest.mark.parametrize("made", [external, deferring])
def test_a_blocked_call_is_not_handed_to_the_host(made: Any) -> None:
    decider = scripted(send_email=blocked)
    with hooked(FRAMEWORK, decider), agent(FRAMEWORK, FRAMEWORK.ways[0], ASKED, DONE) as world:
        assert made(world).run_sync("go").output == "done"
        assert "`send_email` was not run" in world.result_of(MAIL)
    assert len(decider.decided) == 1


def test_a_call_is_handed_out_as_it_was_decided_and_its_result_is_observed() -> None:
    decider = ScriptedDecider(rules={"send_email": sanitized(to="safe@example.com")})
    with hooked(FRAMEWORK, decider), agent(FRAMEWORK, FRAMEWORK.ways[0], ASKED, DONE) as world:
        asking = external(world)
        paused = asking.run_sync("go")
        (call,) = paused.output.calls
        assert call.args_as_dict() == {"to": "safe@example.com"}
        decider.inspect = withheld
        results = DeferredToolResults(calls={call.tool_call_id: "sent"})
        resumed = asking.run_sync(message_history=paused.all_messages(), deferred_tool_results=results)
        assert resumed.output == "done"
        assert "withheld" in world.result_of(MAIL)
    assert len(decider.decided) == 1


class Answer(BaseModel):
    """What an agent ends with."""

    number: int


def test_the_form_of_a_final_answer_is_no_call() -> None:
    decider = scripted(final_result=blocked)
    form = Call(tool="final_result", arguments={"number": 1}, id="call_form_0123456789")
    with hooked(FRAMEWORK, decider), agent(FRAMEWORK, FRAMEWORK.ways[0], Turn(calls=(form,))) as world:
        made: Any = Agent(model(world), output_type=Answer)
        assert made.run_sync("go").output == Answer(number=1)
    assert decider.decided == []
