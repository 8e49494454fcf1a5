"""LlamaIndex's tools that are no functions: queries, retrievers, and classes that define a call of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.tools import BaseTool, QueryEngineTool, RetrieverTool, ToolOutput
from llama_index.core.tools.calling import acall_tool, call_tool
from llama_index.core.tools.types import adapt_to_async_tool

from aegis.cli.demo.provider import Turn
from frameworks.conftest import framework
from frameworks.drivers.llama_index import FRAMEWORK, model, tools
from frameworks.drivers.llama_tools import ASKED, Bare, Derived, Engine, Retriever
from frameworks.model import MAIL, agent, hooked
from support.decider import ScriptedDecider, allowed, blocked, changed, held, sanitized
from support.worlds import World, scripted

TOOLS: dict[str, Callable[[], BaseTool]] = {
    "query engine": lambda: QueryEngineTool.from_defaults(Engine(), name="search", description="d"),
    "retriever": lambda: RetrieverTool.from_defaults(Retriever(), name="search", description="d"),
    "class": Bare,
    "derived class": Derived,
}
WAYS: dict[str, Callable[[BaseTool, str], ToolOutput]] = {
    "called": lambda tool, text: tool(text),
    "by name": lambda tool, text: tool(input=text),
    "as a model's call": lambda tool, text: call_tool(tool, {"input": text}),
    "as a model's call, async": lambda tool, text: asyncio.run(acall_tool(tool, {"input": text})),
    "adapted": lambda tool, text: adapt_to_async_tool(tool).call(text),
    "adapted, async": lambda tool, text: asyncio.run(adapt_to_async_tool(tool).acall(text)),
}


@pytest.fixture(params=TOOLS)
def tool(request: pytest.FixtureRequest) -> BaseTool:
    ASKED.clear()
    return TOOLS[request.param]()


@pytest.fixture(params=WAYS)
def call(request: pytest.FixtureRequest) -> Callable[[BaseTool, str], ToolOutput]:
    return WAYS[request.param]


def test_a_query_is_decided_once_and_asked_as_without_hooks(tool: BaseTool, call: Any) -> None:
    plain = call(tool, "who")
    (asked,) = ASKED
    ASKED.clear()
    decider = scripted()
    with hooked(framework(), decider):
        assert call(tool, "who").content == plain.content
    assert asked == ASKED[0]
    assert len(ASKED) == 1
    assert [(one.tool, one.arguments) for one in decider.decided] == [("search", {"input": "who"})]


def test_a_blocked_query_is_never_asked(tool: BaseTool, call: Any) -> None:
    with hooked(framework(), scripted(search=blocked)):
        output = call(tool, "who")
    assert ASKED == []
    assert "`search` was not run" in output.content
    assert output.is_error


def test_a_changed_query_is_what_is_asked(tool: BaseTool, call: Any) -> None:
    with hooked(framework(), scripted(search=sanitized(input="safe"))):
        call(tool, "who")
    (asked,) = ASKED
    assert "safe" in asked
    assert "who" not in asked


def test_what_a_query_gives_is_observed(tool: BaseTool, call: Any) -> None:
    decider = scripted()
    decider.inspect = lambda value: changed("[masked]")
    with hooked(framework(), decider):
        assert call(tool, "who").content == "[masked]"


def predicted(world: World, mode: str) -> str:
    """What a model says that runs the tools itself."""
    llm = model(world)
    if mode == "sync":
        return str(llm.predict_and_call(tools(world), user_msg="go"))
    return str(asyncio.run(llm.apredict_and_call(tools(world), user_msg="go")))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_call_of_a_model_that_runs_tools_itself_is_decided_once_and_its_refusal_told(mode: str) -> None:
    for rule, told, waited in ((held, "sent", 1), (blocked, "`send_email` was not run", 0)):
        decider = ScriptedDecider(rules={"send_email": rule}, resolve=allowed)
        with hooked(FRAMEWORK, decider), agent(FRAMEWORK, FRAMEWORK.ways[0], Turn(calls=(MAIL,))) as world:
            assert told in predicted(world, mode)
        assert (len(decider.decided), len(decider.waited)) == (1, waited)
        assert len(world.ran) == waited
