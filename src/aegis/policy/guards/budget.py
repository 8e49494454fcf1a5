"""The budget guard: whether what a call would take is still there, on every ledger of its lineage.

The guard reads balances; taking from them happens where the decision is recorded, in the same
transaction, and looks again. What is refused takes nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from aegis.core.finding import Report
from aegis.core.outcome import Effect, Reason
from aegis.core.times import MICROS
from aegis.detect.touch.touch import Touched
from aegis.policy.guards.base import Case
from aegis.policy.mission import Cost, Quote, attested, refusal

_QUIET: Final = Report(guard="budget")
_CHANGING: Final[frozenset[Effect]] = frozenset({"write", "external_send", "exec"})
LEAVING: Final[frozenset[Effect]] = frozenset({"network", "external_send"})
# Prices of which the real one is known only afterwards: reserved at their worst.
PRICED: Final = ("tokens", "money.")


class BudgetGuard:
    """Refuses what a ceiling of the mission, its session or its agent does not leave room for."""

    name = "budget"

    def check(self, case: Case) -> Report:
        """`block` with the first ceiling that the call would pass."""
        view = case.mission
        if view is None:
            return _QUIET
        report: Report | None = None
        for compiled in view.lineage:
            if not compiled.is_timed:
                continue
            mission = compiled.declaration
            starts = (
                (mission.budgets.seconds, mission.iat * MICROS),
                (mission.session_budgets.seconds, view.opened_at),
            )
            if any(limit is not None and case.now - start > limit * MICROS for limit, start in starts):
                report = _exhausted("budget-seconds")
        for balance in view.balances:
            passed = balance.exceeded(case.cost)
            if passed is not None and report is None:
                report = _exhausted(f"budget-{passed.replace('.', '-').replace('_', '-').lower()}")
        if report is None:
            return _QUIET
        return attested(report) if view.attests else report


def cost_of(
    *,
    effects: Iterable[Effect],
    size: int,
    irreversible: bool,
    touched: Touched | None,
    quote: Quote | None,
) -> dict[str, int]:
    """What one call takes from every ledger; `size` is the bytes of its canonical arguments.

    Risk facts are ordered: they only ever add up, and a call counts for the most that it could do.
    """
    kinds = frozenset(effects)
    cost = {"calls": 1}
    for effect in kinds:
        cost[f"effects.{effect}"] = 1
    if kinds & LEAVING:
        cost["bytes_out"] = size
    if irreversible:
        cost["risk.destructive"] = 1
    if kinds & _CHANGING and touched is not None and (objects := touched.count()):
        cost["risk.objects"] = objects
    if quote is not None:
        if quote.tokens:
            cost["tokens"] = quote.tokens
        for currency, amount in quote.money.items():
            cost[f"money.{currency}"] = amount
    return cost


def is_priced(name: str) -> bool:
    """Whether the real amount is known only after the call."""
    return name.startswith(PRICED)


def only(cost: Cost, ceilings: Container[str]) -> dict[str, int]:
    """The part of a cost that some ceiling counts."""
    return {name: value for name, value in cost.items() if name in ceilings and value}


def _exhausted(rule: str) -> Report:
    return refusal("budget", rule, Reason.BUDGET_EXHAUSTED, "the budget of the mission is used up", category="budget")
