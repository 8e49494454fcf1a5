"""Guards of runs that come with Aegis, by name; others register under the entry point group `aegis.run_guards`."""

from __future__ import annotations

from typing import Final

from aegis.runs.guards.ask import AskGuard
from aegis.runs.guards.budget import BudgetGuard
from aegis.runs.guards.classify import ClassifyGuard
from aegis.runs.guards.documents import DocumentsGuard
from aegis.runs.guards.mask import MaskGuard, UnmaskGuard
from aegis.runs.guards.output import OutputGuard
from aegis.runs.guards.residency import ResidencyGuard
from aegis.runs.parts import Make

GROUP: Final = "aegis.run_guards"
BUILT_IN: Final[dict[str, Make]] = {
    "ask": AskGuard.configured,
    "budget": BudgetGuard.configured,
    "classify": ClassifyGuard.configured,
    "documents": DocumentsGuard.configured,
    "mask": MaskGuard.configured,
    "output": OutputGuard.configured,
    "residency": ResidencyGuard.configured,
    "unmask": UnmaskGuard.configured,
}
