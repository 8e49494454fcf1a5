"""The contract of adapters over one framework, named by `AEGIS_TEST_FRAMEWORK`; `run_frameworks.py` runs them all.

Frameworks cannot live in one environment, so these tests are no part of the main run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest

from aegis import __version__
from aegis.sdk import hooking
from frameworks.model import Framework, Way

NAME = os.environ.get("AEGIS_TEST_FRAMEWORK", "")
RECORD = os.environ.get("AEGIS_TEST_RECORD", "")  # the file that the results are written to, if they are kept
# Hooks whatever is installed, as a program does; where it is not set, what this framework is hooked by. The frameworks
# of an environment are loaded and hooked together once, and not with each of them again.
TOGETHER = "AEGIS_TEST_TOGETHER" in os.environ
# Tests that are about one framework.
# CrewAI lives with the first major version of `mcp`.
ALONE = {
    # Its kit brings a host of its own; it lives where this framework does.
    "test_agent_hooks.py": "agent_framework",
    "test_agents_calls.py": "openai_agents",
    "test_agents_pause.py": "openai_agents",
    "test_autogen.py": "autogen",
    "test_claude_agent.py": "claude_agent",
    "test_crewai_cache.py": "crewai",
    "test_google_adk.py": "google_adk",
    "test_google_genai.py": "google_genai",
    "test_langchain_tools.py": "langchain",
    "test_litellm_formats.py": "litellm",
    "test_litellm_proxy.py": "litellm",
    "test_llama_tools.py": "llama_index",
    "test_mcp_first.py": "crewai",
    "test_mcp_servers.py": "mcp",
    "test_mistral.py": "mistral",
    "test_pydantic_ai.py": "pydantic_ai",
    "test_smolagents_code.py": "smolagents",
}


def pytest_configure() -> None:
    """Leave the other frameworks of the environment alone where they were not asked for."""
    if NAME and not TOGETHER:
        vars(hooking)["ADAPTERS"] = tuple(f"aegis.adapters.{name}" for name in framework().adapters)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Nothing is collected unless a framework is named, and what is about one framework for that one alone."""
    if not NAME:
        return True
    return True if ALONE.get(collection_path.name, NAME) != NAME else None


def framework() -> Framework:
    """The framework under test."""
    found: Framework = import_module(f"frameworks.drivers.{NAME}").FRAMEWORK
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a `way` over every way of the framework that it is about."""
    if "way" in metafunc.fixturenames:
        needs = [mark.args[0] for mark in metafunc.definition.iter_markers("only")]
        ways: list[Way] = [way for way in framework().ways if all(need in way.can for need in needs)]
        metafunc.parametrize("way", ways or [None], ids=[way.name for way in ways] or ["none"])
    for name in ("beside", "fair"):
        if name in metafunc.fixturenames:
            drives = getattr(framework(), name)
            metafunc.parametrize(name, list(drives.values()) or [None], ids=list(drives) or ["none"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that is about no way of the framework is not one of its tests."""
    idle = [item for item in items if isinstance(item, pytest.Function) and item.name.endswith("[none]")]
    idle += [item for item in items if isinstance(item, pytest.Function) and "[none-" in item.name]
    if idle:
        config.hook.pytest_deselected(items=idle)
        items[:] = [item for item in items if item not in idle]


_results: dict[str, dict[str, int]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count the cases of every way."""
    report = yield
    if call.when == "call" or report.failed:
        parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        way = parameters.get("way")
        counted = _results.setdefault("" if way is None else way.name, {"cases": 0, "passed": 0})
        counted["cases"] += 1
        counted["passed"] += report.passed
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what the ways came to, for the page of frameworks; nothing of a run that was not whole."""
    if not RECORD or not NAME or session.config.option.keyword or session.shouldstop:
        return
    distribution = import_module(f"aegis.adapters.{NAME}").DISTRIBUTION
    others = _results.pop("", {"cases": 0, "passed": 0})
    record = {
        "aegis": __version__,
        "framework": distribution,
        "version": metadata.version(distribution),
        "ways": _results,
        "others": others,
        "again": framework().again if isinstance(framework().again, str) else "",
    }
    Path(RECORD).write_text(json.dumps(record, indent=1) + "\n")
