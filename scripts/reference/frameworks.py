"""The frameworks that are hooked: where, from the adapters; how they are tested, from the suite and its locks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from run_frameworks import ROOT, Environment, environments

from aegis.adapters._enforce import Enforcer
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Patches
from aegis.adapters.seams import Seams
from aegis.facade.coverage.firing import Refusing
from reference.markdown import page, table

DRIVERS = ROOT / "tests" / "frameworks" / "drivers"


def render() -> str:
    """The page."""
    tested = [(framework, one) for one in environments(oldest=False) for framework in one.frameworks]
    tested.sort(key=lambda pair: pair[0])
    return page(
        "Frameworks",
        "What `aegis.auto()` hooks beside the OpenAI and Anthropic packages. `make test` runs the contract of adapters "
        "over every way in this table, with the real package in the version of its lock and a model provider on "
        "loopback, and fails where one of them fails.",
        table(
            ["framework", "supported", "tested", "ways", "seams", "refused while hooked", "not covered"],
            [_row(framework, environment) for framework, environment in tested],
        ),
    )


def _row(framework: str, environment: Environment) -> tuple[str, ...]:
    adapter = import_module(f"aegis.adapters.{framework}")
    low, high = (".".join(map(str, one)) for one in adapter.SUPPORTED)
    seams = _seams(adapter)
    return (
        f"`{adapter.DISTRIBUTION}`",
        f">={low}, <{high}",
        _locked(environment.lock, adapter.DISTRIBUTION),
        ", ".join(_ways(framework)),
        ", ".join(f"`{seam}`" for seam in seams.seams),
        ", ".join(seams.barred) or "-",
        ", ".join(seams.uncovered) or "-",
    )


def _locked(lock: Path, distribution: str) -> str:
    """The version of a package in a lock."""
    for line in lock.read_text().splitlines():
        name, _, rest = line.partition("==")
        if name == distribution:
            return rest.split()[0]
    raise SystemExit(f"frameworks: `{lock.name}` holds no `{distribution}`")


def _ways(framework: str) -> Iterator[str]:
    """The names of the ways that a driver drives."""
    for node in ast.walk(ast.parse((DRIVERS / f"{framework}.py").read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Way":
            for keyword in node.keywords:
                if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                    yield str(keyword.value.value)


def _seams(adapter: Any) -> Seams:
    patches = Patches()
    try:
        found: Seams = adapter.hook(Enforcer(Refusing()), Memory(), patches, bar=True)
    finally:
        patches.undo()
    return found
