"""Google ADK: a tool that asks a person in its body runs once there is an answer, under the decision that it had."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai import types

from aegis.cli.demo.provider import Turn
from frameworks.drivers.google_adk import FRAMEWORK, agent_of
from frameworks.model import MAIL, agent, hooked
from support.worlds import World, scripted

ToolContext: Any = import_module("google.adk.tools").ToolContext
ASKED = "adk_request_confirmation"


def asking(world: World) -> Any:
    def send_email(to: str, tool_context: Any) -> Any:
        """Send a mail."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="really?")
            return {"draft": "a text from elsewhere"}
        return world.run("send_email", {"to": to})

    send_email.__annotations__["tool_context"] = ToolContext
    return agent_of(world, tools=[FunctionTool(send_email)])


async def confirmed(world: World) -> None:
    runner = InMemoryRunner(agent=asking(world), app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="u")

    async def say(part: Any) -> list[str]:
        message = types.Content(role="user", parts=[part])
        events = runner.run_async(user_id="u", session_id=session.id, new_message=message)
        return [call.id or "" async for event in events for call in event.get_function_calls() if call.name == ASKED]

    (asked,) = await say(types.Part(text="go"))
    assert world.ran == []
    answer = types.FunctionResponse(id=asked, name=ASKED, response={"confirmed": True})
    await say(types.Part(function_response=answer))


def test_a_tool_that_asks_in_its_body_runs_after_the_answer_and_nothing_unobserved_is_said_before() -> None:
    decider, turns = scripted(), (Turn(calls=(MAIL,)), Turn(text="waiting"), Turn(text="done"))
    with hooked(FRAMEWORK, decider), agent(FRAMEWORK, FRAMEWORK.ways[0], *turns) as world:
        asyncio.run(confirmed(world))
        assert world.ran == [("send_email", {"to": "a@example.com"})]
        assert not any("a text from elsewhere" in str(one.body) for one in world.asked)
    assert [call.call_id for call in decider.decided] == [MAIL.id]
    assert [one.result for one in decider.observed] == ["sent"]
