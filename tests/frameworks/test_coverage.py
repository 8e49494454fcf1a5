"""Canaries over every path of a framework's tools: a decision comes first, and no body runs for them."""

from __future__ import annotations

from importlib import import_module

import pytest

from aegis.adapters._patch import Patches
from aegis.facade.coverage.canaries import CANARIES
from aegis.facade.coverage.firing import coverage
from frameworks.conftest import NAME, framework
from frameworks.model import agent

OURS = {"send_email", "read_file"}  # packages bring tools of their own, which no canary may reach
SEAMS = {
    "langchain": ("run", "arun"),
    "crewai": ("invoke", "ainvoke"),
    "pydantic_ai": ("_raw_execute",),
    "google_adk": ("run_async",),
    "agent_framework": ("_invoke_function",),
    "autogen": ("run_json", "call_tool", "call_tool_stream"),
}


def test_every_path_of_every_tool_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    if NAME not in CANARIES:
        return
    driver = import_module(f"frameworks.drivers.{NAME}")
    with agent(framework(), framework().ways[0]) as world:
        made = _tools(driver, world)
        found = [one for one in coverage() if one.framework == _distribution() and one.tool in OURS]
        assert {one.tool for one in found} == OURS
        assert {one.state for one in found} == {"covered"}

        replace = Patches.replace

        def without(patches: Patches, owner: object, name: str, make: object) -> None:
            if name not in SEAMS[NAME] or _witness(make):
                replace(patches, owner, name, make)  # type: ignore[arg-type]

        monkeypatch.setattr(Patches, "replace", without)
        states = {one.state for one in coverage() if one.framework == _distribution() and one.tool == "send_email"}
        assert "UNCOVERED" in states
        assert world.ran == []
        assert made


def _witness(make: object) -> bool:
    return "witnessed" in getattr(make, "__qualname__", "")


def _distribution() -> str:
    return str(import_module(f"aegis.adapters.{NAME}").DISTRIBUTION)


def _tools(driver: object, world: object) -> object:
    """The tools of a driver, as objects of the framework."""
    functions = getattr(driver, "tools", None) or driver.functions  # type: ignore[attr-defined]
    made = functions(world)
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
