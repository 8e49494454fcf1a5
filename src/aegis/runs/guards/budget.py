"""A ceiling on what one principal's runs cost a day."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from aegis.core.outcome import Outcome, Reason
from aegis.runs.guard import GuardContext, RunReport, RunView, Stage
from aegis.runs.guards.options import read_options
from aegis.runs.spending import spent


class _Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    per_day: Annotated[int, msgspec.Meta(ge=0)]


class BudgetGuard:
    """Refuses to go on once the principal's runs of the day cost `per_day` (millionths of the price list's currency).

    What a model costs is known after it answered, so the answer that crosses the ceiling is the last one.
    """

    name = "budget"
    stages: frozenset[Stage] = frozenset({"ingress", "result"})

    def __init__(self, per_day: int) -> None:
        self._per_day = per_day

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> BudgetGuard:
        """From `{per_day}`; raises `ValueError`."""
        return cls(read_options(options, _Options).per_day)

    async def check(self, view: RunView, context: GuardContext) -> RunReport:
        """`block` where nothing is left."""
        total = await asyncio.to_thread(spent, context.store, context.clock, view.principal.id)
        if total < self._per_day:
            return RunReport()
        return RunReport(
            outcome=Outcome.BLOCK, reason=Reason.BUDGET_EXHAUSTED, message="the budget of the day is used up"
        )
