"""Pydantic AI: calls that a run hands to the host's code, and functions that make the final answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, DeferredToolResults, ExternalToolset
from pydantic_ai.output import Choice, Choices, TextOutput
from pydantic_ai.tools import Tool, ToolDefinition

from aegis.cli.demo.provider import Call, Turn
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.errors import CallRefused
from frameworks.drivers.pydantic_ai import FRAMEWORK, model
from frameworks.model import MAIL, agent, hooked
from support.decider import ScriptedDecider, allowed, blocked, sanitized, withheld
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


def publishing(world: World) -> Any:
    """An agent whose final answer is what a function makes of its call."""

    def publish(text: str, place: str = "blog") -> str:
        """Publish a text."""
        return world.run("publish", {"text": text, "place": place})

    return Agent(model(world), output_type=[publish, str], retries=3)


def publishing_text(world: World) -> Any:
    """An agent whose final text goes through a function."""

    def publish(text: str) -> str:
        return world.run("publish", {"text": text})

    return Agent(model(world), output_type=TextOutput(publish), retries=3)


CALLED = Turn(calls=(Call(tool="final_result", arguments={"text": "news"}, id="call_publish_0123456789"),))
SPOKEN = Turn(text="news")
OUTPUTS = pytest.mark.parametrize(
    ("made", "turn", "arguments"),
    [
        (publishing, CALLED, {"text": "news", "place": "blog"}),
        (publishing_text, SPOKEN, {"text": "news"}),
    ],
    ids=["a call", "text"],
)


@OUTPUTS
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_function_of_the_final_answer_is_decided_with_what_it_gets(
    made: Any, turn: Turn, arguments: Any, streamed: bool
) -> None:
    decider = scripted()
    with hooked(FRAMEWORK, decider), agent(FRAMEWORK, FRAMEWORK.ways[0], turn) as world:
        world.results["publish"] = "published"
        assert (asyncio.run(_streamed(made(world))) if streamed else made(world).run_sync("go").output) == "published"
    assert [one for _, one in world.ran if one == arguments] == [arguments]
    assert all((call.tool, call.arguments) in world.ran for call in decider.decided)
    assert {call.tool for call in decider.decided} == {"publish"}


async def _streamed(agent: Any) -> str:
    async with agent.run_stream("go") as run:
        return str(await run.get_output())


@OUTPUTS
def test_a_blocked_function_of_the_final_answer_does_not_run_and_the_model_is_told(
    made: Any, turn: Turn, arguments: Any
) -> None:
    decider = ScriptedDecider(rules={"publish": lambda call: _unless_done(call)})
    with hooked(FRAMEWORK, decider), agent(FRAMEWORK, FRAMEWORK.ways[0], turn, DONE) as world:
        world.results["publish"] = "done"
        assert made(world).run_sync("go").output == "done"
    assert arguments not in [given for _, given in world.ran]
    assert "`publish` was not run" in json.dumps(world.asked[-1].body)


def _unless_done(call: ToolCall) -> Decision:
    return allowed(call) if call.arguments["text"] == "done" else blocked(call)


@OUTPUTS
def test_what_a_function_of_the_final_answer_gives_is_observed(made: Any, turn: Turn, arguments: Any) -> None:
    decider = scripted()
    decider.inspect = withheld
    with hooked(FRAMEWORK, decider), agent(FRAMEWORK, FRAMEWORK.ways[0], turn) as world:
        world.results["publish"] = "published"
        with pytest.raises(CallRefused, match="withheld"):
            made(world).run_sync("go")
    assert world.ran == [("publish", arguments)]


def test_an_action_that_the_model_picks_is_decided() -> None:
    def close() -> str:
        raise AssertionError("it was blocked")

    decider = scripted(close=blocked)
    picks = [
        Call(tool="final_result", arguments={"response": name}, id=f"call_pick_{name}_0123456789")
        for name in ("close", "wait")
    ]
    turns = [Turn(calls=(pick,)) for pick in picks]
    with hooked(FRAMEWORK, decider), agent(FRAMEWORK, FRAMEWORK.ways[0], *turns) as world:
        actions: Any = Choices({"close": Choice("close it", value=close), "wait": Choice("do not", value="waited")})
        made: Any = Agent(model(world), output_type=actions, retries=3)
        assert made.run_sync("go").output == "waited"
    assert [call.tool for call in decider.decided] == ["close"]
