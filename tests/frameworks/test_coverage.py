"""Canaries over every path of a framework's tools: a decision comes first, and no body runs for them."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Patches
from aegis.errors import CallRefused
from aegis.sdk.coverage.firing import ALL_CANARIES, Refusing, coverage
from frameworks.conftest import NAME, framework
from frameworks.model import agent

OURS = {"send_email", "read_file"}  # packages bring tools of their own, which no canary may reach
SEAMS = {
    "langchain": ("run", "arun"),
    "crewai": ("invoke", "ainvoke"),
    "pydantic_ai": ("_raw_execute", "execute_tool_call"),
    "google_adk": ("run_async",),
    "agent_framework": ("_invoke_function",),
    "autogen": ("run_json", "call_tool", "call_tool_stream"),
    "llama_index": ("call", "acall"),
    "smolagents": ("__call__",),
    "strands": ("stream",),
    "openai_agents": ("_invoke_function_tool_with_metadata",),
    "mistral": ("create_function_result",),
    # The server under it is one of MCP, which is hooked as well.
    "claude_agent": ("_handle_sdk_mcp_request", "get_request_handler", "send_request"),
    "mcp": ("send_request", "get_request_handler", "call_tool"),
}


# Frameworks whose bodies are methods of a class, where a witness stands for good; the others hold plain functions.
KNOWING = {"langchain", "crewai", "pydantic_ai", "google_adk", "agent_framework", "autogen", "smolagents", "mcp"}


def test_every_path_of_every_tool_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    if NAME not in ALL_CANARIES:
        return
    driver = import_module(f"frameworks.drivers.{NAME}")
    with agent(framework(), framework().ways[0]) as world:
        gc.collect()  # tools that other tests left are none of the program's
        made = _tools(driver, world)
        found = [one for one in coverage() if one.framework == _distribution() and one.tool in OURS]
        assert {one.tool for one in found} == OURS
        assert {one.state for one in found} == {"covered"}

        _without_seams(monkeypatch)
        states = {one.state for one in coverage() if one.framework == _distribution() and one.tool == "send_email"}
        assert "UNCOVERED" in states
        assert world.ran == []
        assert made


def test_a_body_that_runs_past_every_seam_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    if NAME not in KNOWING:
        return
    driver, patches, told = import_module(f"frameworks.drivers.{NAME}"), Patches(), []
    enforcer = Enforcer(Refusing(), on_uncovered=lambda tool, session: told.append(tool))
    _without_seams(monkeypatch)
    with agent(framework(), framework().ways[0]) as world:
        try:
            import_module(f"aegis.adapters.{NAME}").hook(enforcer, Memory(), patches, bar=True)
            made = _tools(driver, world)
            for canary in ALL_CANARIES[NAME]():
                if canary.tool == "read_file":
                    # A path with a seam of its own, or a tool that another test left and that has no such path.
                    with suppress(CallRefused, RuntimeError):
                        canary.fire()
        finally:
            patches.undo()
        assert made
        assert set(told) == {tool for tool, _ in world.ran} == {"read_file"}
        assert len(told) >= len(world.ran)


def test_what_is_called_as_the_function_that_it_is_made_of_is_told_of() -> None:
    if NAME != "strands":
        return
    driver, patches, told = import_module(f"frameworks.drivers.{NAME}"), Patches(), []
    with agent(framework(), framework().ways[0]) as world:
        try:
            enforcer = Enforcer(Refusing(), on_uncovered=lambda tool, session: told.append(tool))
            import_module(f"aegis.adapters.{NAME}").hook(enforcer, Memory(), patches, bar=True)
            assert driver.tools(world)[0]("a@example.com") == "sent"
        finally:
            patches.undo()
    assert told == ["send_email"]


SLY = """
from smolagents import Tool

class Sly(Tool):
    name, description, output_type = "sly", "Has a way round.", "string"
    inputs = {"text": {"type": "string", "description": "Any."}}

    def forward(self, text: str) -> str:
        raise SystemExit("a canary must not run this")

Sly.__call__ = lambda self, *args, **kwargs: self.forward("past every seam")

sly = Sly()
"""


def test_what_a_module_does_to_a_tool_after_it_was_made_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if NAME != "smolagents":
        return
    (tmp_path / "sly_tools.py").write_text(SLY)
    monkeypatch.syspath_prepend(tmp_path)
    states = {one.path: one.state for one in coverage(["sly_tools"]) if one.tool == "sly"}
    del sys.modules["sly_tools"]
    assert states["Tool.__call__"] == states["ToolCallingAgent.execute_tool_call"] == "UNCOVERED"


def _without_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooking puts witnesses alone in place."""
    replace = Patches.replace

    def without(patches: Patches, owner: object, name: str, make: object) -> None:
        if name not in SEAMS[NAME] or _witness(make):
            replace(patches, owner, name, make)  # type: ignore[arg-type]

    monkeypatch.setattr(Patches, "replace", without)


def _witness(make: object) -> bool:
    return "witnessed" in getattr(make, "__qualname__", "")


def _distribution() -> str:
    return str(import_module(f"aegis.adapters.{NAME}").DISTRIBUTION)


def _tools(driver: object, world: object) -> object:
    """The tools of a driver, as objects of the framework."""
    functions = getattr(driver, "tools", None) or driver.functions  # type: ignore[attr-defined]
    made = functions(world)
    if NAME == "mistral":
        context = import_module("mistralai.extra.run.context").RunContext(model="m")
        return [context, *(context.register_func(one) for one in made)]
    if NAME == "pydantic_ai":
        return import_module("pydantic_ai.toolsets").FunctionToolset(made)
    wrappers = {
        "google_adk": ("google.adk.tools", {}),
        "agent_framework": ("agent_framework", {}),
        "autogen": ("autogen_core.tools", {"description": "d"}),
    }
    if NAME not in wrappers:
        return made
    module, options = wrappers[NAME]
    tool = import_module(module)
    wrap = tool.tool if NAME == "agent_framework" else tool.FunctionTool
    return [wrap(one, **options) for one in made]
