"""What Python loads at its start below `aegis run`: nothing, until a framework is imported that Aegis hooks.

Then `aegis.auto()` is on before the framework can be used. The program's own `sitecustomize` is loaded as well. Only
the standard library is needed here; where the program's Python has no Aegis, one line on standard error says so.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

FRAMEWORKS = frozenset(
    {
        "openai", "anthropic", "langchain_core", "langchain", "langgraph", "crewai", "google.genai", "google.adk",
        "botocore", "mistralai", "llama_index", "smolagents", "agents", "pydantic_ai", "claude_agent_sdk", "mcp",
        "strands", "agent_framework", "autogen_core", "litellm",
    }
)  # fmt: skip
HERE = Path(__file__).resolve().parent


class _Last(Loader):
    """Runs the framework's own loader, and puts the hooks on once nothing that they need is half loaded."""

    def __init__(self, finder: Finder, loader: Any):
        self._finder = finder
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the framework's own loader."""
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        """Load the framework; with the outermost one, hook."""
        self._finder.depth += 1
        try:
            self._loader.exec_module(module)
        finally:
            self._finder.depth -= 1
        if self._finder.depth == 0:
            self._finder.hook()


class Finder(MetaPathFinder):
    """Notices the first import of a framework."""

    def __init__(self) -> None:
        self.depth = 0
        self._done = False

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The framework's own spec with our loader around its loader; `None` for anything else."""
        if self._done or name not in FRAMEWORKS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Last(self, spec.loader)
        return spec

    def hook(self) -> None:
        """Hook every framework that is installed; raises what `aegis.auto` raises, so that the program ends."""
        self._done = True
        sys.meta_path.remove(self)
        if importlib.util.find_spec("aegis") is None:
            sys.stderr.write("aegis run: this Python has no `aegis-guard`, so its frameworks are not hooked\n")
            return
        import aegis

        aegis.auto(on_unhooked="warn" if os.environ.get("AEGIS_ON_UNHOOKED") == "warn" else "error")


def _own() -> None:
    """Load the `sitecustomize` that this one stands in front of."""
    rest = [folder for folder in sys.path if Path(folder).resolve() != HERE]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if "AEGIS_URL" in os.environ:
    sys.meta_path.insert(0, Finder())
_own()
