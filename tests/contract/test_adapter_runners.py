"""Tools that the SDKs run themselves beside plain functions: toolsets, browsers, hosted sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import anthropic
import openai.lib.beta.agents  # noqa: F401  (the dispatch module is importable only after it)
import pytest
from anthropic import beta_async_tool, beta_tool
from anthropic.lib.tools import BetaRunnableToolset
from anthropic.lib.tools._beta_session_runner import SessionToolRunner
from anthropic.types.beta.sessions import BetaManagedAgentsAgentToolUseEvent
from openai.lib.browser import BrowserToolset
from openai.lib.decisions_tool_runner import DecisionsToolRunner
from openai.lib.responses_tool_runner import ResponsesToolRunner
from openai.lib.streaming.agents._dispatch import AsyncToolDispatcher, ToolDispatcher
from openai.types.beta import AgentFunctionCallItem

from aegis.cli.demo.provider import Call, Turn
from aegis.errors import UnhookedFramework
from contract import openai_paths
from support.asking import Mode, both_modes
from support.decider import ScriptedDecider, allowed, blocked, changed, sanitized, withheld
from support.raw_server import Received, answer, serving
from support.worlds import hooked, scripted, world


class Browser(BetaRunnableToolset):
    """A toolset whose one member notes what it was given."""

    toolset_name = "browser"

    def __init__(self) -> None:
        self.ran: list[tuple[str, Any]] = []

    def to_dict(self) -> Any:
        return {"type": "browser_toolset_20260801"}

    def call(self, context: Any, name: str, input: Mapping[str, object]) -> str:  # noqa: A002
        self.ran.append((name, dict(input)))
        return "a page"


def _member_turn(request: Received) -> bytes:
    messages = request.json["messages"]
    done = any(message["role"] == "user" and isinstance(message["content"], list) for message in messages)
    use = {"type": "tool_use", "id": "u1", "name": "navigate", "toolset_name": "browser", "input": {"url": "https://x"}}
    content = [{"type": "text", "text": "done"}] if done else [use]
    return answer(
        200,
        {"id": f"msg_{len(messages)}", "type": "message", "role": "assistant", "model": "m", "content": content,
         "stop_reason": "end_turn" if done else "tool_use", "stop_sequence": None,
         "usage": {"input_tokens": 1, "output_tokens": 1}},
    )  # fmt: skip


def browse(decider: ScriptedDecider) -> tuple[Browser, Any]:
    browser = Browser()
    with hooked(decider), serving(_member_turn) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0)
        client.beta.messages.tool_runner(
            model="m", max_tokens=9, tools=[browser], messages=[{"role": "user", "content": "go"}]
        ).until_done()
    (result,) = server.received[1].json["messages"][-1]["content"]
    return browser, result


def test_members_of_a_toolset_are_decided_under_their_toolset() -> None:
    decider = scripted()
    browser, result = browse(decider)
    assert browser.ran == [("navigate", {"url": "https://x"})]
    assert (decider.decided[0].server, decider.decided[0].tool) == ("toolset:browser", "navigate")
    assert result["content"] == "a page"


def test_a_refused_member_does_not_run_and_its_result_says_why() -> None:
    browser, result = browse(scripted(navigate=blocked))
    assert browser.ran == []
    assert "`navigate` was not run" in result["content"]
    assert (result["toolset_name"], result["is_error"]) == ("browser", True)


def test_a_result_of_a_member_is_observed() -> None:
    decider = scripted()
    decider.inspect = withheld
    assert "withheld" in browse(decider)[1]["content"]


def hosted(tool: Any, decider: ScriptedDecider, given: dict[str, Any]) -> Any:
    """The result event that a managed session's runner makes of one tool use."""
    event = BetaManagedAgentsAgentToolUseEvent.model_construct(
        id="sevt_1", name=tool.name, input=given, type="agent.tool_use", session_thread_id=None
    )
    client = anthropic.AsyncAnthropic(api_key="k")
    runner = SessionToolRunner(client, "session_1", tools=[tool])
    with hooked(decider):
        result, _ = asyncio.run(runner._call_tool(tool, event, given))
    return result


@both_modes
def test_tools_of_a_managed_session_are_decided_and_observed(mode: Mode) -> None:
    ran: list[Any] = []

    def note(count: int, item: str = "tea") -> str:
        ran.append((count, item))
        return "a secret"

    async def anote(count: int, item: str = "tea") -> str:
        return note(count, item)

    tool: Any = beta_tool(note) if mode == "sync" else beta_async_tool(anote)
    decider = ScriptedDecider(inspect=lambda value: changed("[masked]"))
    result = hosted(tool, decider, {"count": "3"})
    assert ran == [(3, "tea")]
    assert decider.decided[0].arguments == {"count": 3, "item": "tea"}
    assert "[masked]" in json.dumps(result)
    assert "a secret" not in json.dumps(result)

    refused = hosted(tool, scripted(**{tool.name: blocked}), {"count": "3"})
    assert len(ran) == 1
    assert refused["is_error"] is True
    assert "was not run" in json.dumps(refused)

    hosted(tool, scripted(**{tool.name: sanitized(count=9, item="water")}), {"count": 3})
    assert ran[-1] == (9, "water")


@both_modes
def test_how_a_tool_of_a_session_fails_is_observed(mode: Mode) -> None:
    def note(arguments: Any = None) -> str:
        raise ValueError("a secret")

    async def anote(arguments: Any = None) -> str:
        return note()

    tool: Any = beta_tool(note) if mode == "sync" else beta_async_tool(anote)
    for inspect, told in ((withheld, "withheld"), (lambda _: changed("[masked]"), "[masked]")):
        decider = ScriptedDecider(inspect=inspect)
        anthropics = json.dumps(hosted(tool, decider, {"arguments": {}}))
        openais = str(dispatched(note if mode == "sync" else anote, decider, mode))
        assert told in anthropics
        assert told in openais
        assert "a secret" not in anthropics + openais


def dispatched(handler: Callable[..., Any], decider: ScriptedDecider, mode: Mode) -> Any:
    """The result that an agent session's stream submits for one function call."""
    call = AgentFunctionCallItem.model_construct(
        id="i",
        arguments='{"to": "a"}',
        call_id="call_1",
        name="send",
        status="completed",
        turn_id="t",
        type="function_call",
    )
    sent: list[Any] = []

    async def acreate(session_id: str, *, events: list[Any], **options: Any) -> None:
        sent.extend(events)

    def create(session_id: str, *, events: list[Any], **options: Any) -> None:
        sent.extend(events)

    with hooked(decider):
        if mode == "sync":
            sessions: Any = SimpleNamespace(events=SimpleNamespace(create=create))
            ToolDispatcher(sessions, {"send": handler}).dispatch(("session_1", call, handler))
        else:
            sessions = SimpleNamespace(events=SimpleNamespace(create=acreate))
            asyncio.run(AsyncToolDispatcher(sessions, {"send": handler}).dispatch(("session_1", call, handler)))
    (result,) = sent
    return result


@both_modes
def test_tools_of_an_agent_session_are_decided_and_observed(mode: Mode) -> None:
    ran: list[Any] = []

    def send(arguments: dict[str, Any]) -> Any:
        ran.append(arguments)
        return {"state": "a secret"}

    async def asend(arguments: dict[str, Any]) -> Any:
        return send(arguments)

    handler = send if mode == "sync" else asend
    result = dispatched(handler, scripted(send=sanitized(to="b")), mode)
    assert ran == [{"to": "b"}]
    assert (result["success"], result["output"]) == (True, '{"state":"a secret"}')
    result = dispatched(handler, scripted(send=blocked), mode)
    assert len(ran) == 1
    assert "`send` was not run" in result["output"]
    result = dispatched(handler, ScriptedDecider(inspect=withheld), mode)
    assert "withheld" in result["output"]


class Driver:
    """A browser that notes where it was sent."""

    def __init__(self) -> None:
        self.went: list[str] = []

    def state(self) -> Any:
        tab = {"id": "t1", "title": "T", "url": "https://example.com/", "active": True}
        return {"tabs": [tab], "active_tab_id": "t1"}

    def navigate(self, action: Any) -> None:
        self.went.append(action["url"])


def test_browser_actions_of_a_runner_are_decided_one_by_one() -> None:
    driver = Driver()
    allow = Call(tool="browser_navigate", arguments={"tab_id": "t1", "url": "https://example.com/a"}, id="c1")
    deny = Call(tool="browser_navigate", arguments={"tab_id": "t1", "url": "https://evil.example/"}, id="c2")

    def rule(call: Any) -> Any:
        return blocked(call) if "evil" in call.arguments["url"] else allowed(call)

    turns = (Turn(calls=(deny,)), Turn(calls=(allow,)), Turn(text="done"))
    with hooked(scripted(browser_navigate=rule)), world(*turns) as agent:
        browser = BrowserToolset(driver, members=["navigate"], confirm=lambda _: True, url_policy=lambda *_: True)
        runner = ResponsesToolRunner(browser=browser)
        response = runner.run(openai_paths.client(agent), {"model": "m", "input": "go"})
        assert "`browser_navigate` was not run" in agent.results_sent(1)["c2"]
    assert response.output_text == "done"
    assert driver.went == ["https://example.com/a"]


def test_a_runner_that_cannot_be_covered_is_refused() -> None:
    with hooked(scripted()), pytest.raises(UnhookedFramework):
        DecisionsToolRunner(observe=lambda: "x", candidates=lambda *_: []).run()  # type: ignore[call-arg]
