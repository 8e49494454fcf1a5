"""LlamaIndex's tools that are no functions: queries, retrievers, and classes that define a call of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.tools import BaseTool, QueryEngineTool, RetrieverTool, ToolOutput
from llama_index.core.tools.calling import acall_tool, call_tool
from llama_index.core.tools.types import adapt_to_async_tool

from frameworks.conftest import framework
from frameworks.drivers.llama_tools import ASKED, Bare, Derived, Engine, Retriever
from frameworks.model import hooked
from support.decider import blocked, changed, sanitized
from support.worlds import scripted

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
