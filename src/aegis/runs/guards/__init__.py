"""Guards of runs that come with Aegis, by name; others register under the entry point group `aegis.run_guards`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from aegis.runs.guard import Factory, RunGuard
from aegis.runs.guards.ask import AskGuard
from aegis.runs.guards.budget import BudgetGuard
from aegis.runs.guards.classify import ClassifyGuard
from aegis.runs.guards.documents import DocumentsGuard
from aegis.runs.guards.mask import MaskGuard, UnmaskGuard
from aegis.runs.guards.output import OutputGuard
from aegis.runs.guards.residency import ResidencyGuard

GROUP: Final = "aegis.run_guards"
BUILT_IN: Final[dict[str, Factory]] = {
    "ask": AskGuard.configured,
    "budget": BudgetGuard.configured,
    "classify": ClassifyGuard.configured,
    "documents": DocumentsGuard.configured,
    "mask": MaskGuard.configured,
    "output": OutputGuard.configured,
    "residency": ResidencyGuard.configured,
    "unmask": UnmaskGuard.configured,
}


def known_guards() -> dict[str, Factory]:
    """Every guard that can be configured: the built-in ones, and those of installed packages under other names."""
    found: dict[str, Factory] = {point.name: point.load for point in entry_points(group=GROUP)}
    loaded = {name: load() for name, load in found.items() if name not in BUILT_IN}
    return {**loaded, **BUILT_IN}


def make_guard(name: str, options: Mapping[str, Any], known: Mapping[str, Factory]) -> RunGuard:
    """The guard `name` with its options; raises `ValueError` that says what is wrong with them."""
    guard: RunGuard = known[name](options)
    if guard.name != name:
        raise ValueError(f"the guard calls itself `{guard.name}`")
    return guard
