"""The contract of adapters over one framework, named by `AEGIS_TEST_FRAMEWORK`; `run_frameworks.py` runs them all.

Frameworks cannot live in one environment, so these tests are no part of the main run.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import pytest

from frameworks.model import Framework, Way

NAME = os.environ.get("AEGIS_TEST_FRAMEWORK", "")
# Tests that are about one framework.
# CrewAI lives with the first major version of `mcp`.
ALONE = {
    "test_agents_pause.py": "openai_agents",
    "test_claude_agent.py": "claude_agent",
    "test_crewai_cache.py": "crewai",
    "test_litellm_formats.py": "litellm",
    "test_litellm_proxy.py": "litellm",
    "test_llama_tools.py": "llama_index",
    "test_mcp_first.py": "crewai",
    "test_smolagents_code.py": "smolagents",
}


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that is about no way of the framework is not one of its tests."""
    idle = [item for item in items if isinstance(item, pytest.Function) and item.name.endswith("[none]")]
    idle += [item for item in items if isinstance(item, pytest.Function) and "[none-" in item.name]
    if idle:
        config.hook.pytest_deselected(items=idle)
        items[:] = [item for item in items if item not in idle]
