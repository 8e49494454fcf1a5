"""One stage: its guards in order, each shown what the one before it left, until one blocks or holds."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aegis.core.outcome import Outcome, Reason
from aegis.runs.guard import GuardContext, RunGuard, RunReport, RunView
from aegis.runs.record import GuardRow

_log = logging.getLogger("aegis.runs")

Ask = Callable[[RunGuard, RunReport, RunView], Awaitable[tuple[bool, Reason]]]
"""Asks a person to let the run go on; answers whether it may, and why not. Does not return while nobody answered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """What a stage came to: the view as its guards left it, and one row for every guard that was asked."""

    view: RunView
    outcome: Outcome = Outcome.ALLOW
    reason: Reason = Reason.NONE
    message: str = ""
    rows: tuple[GuardRow, ...] = field(default=())


async def run_stage(guards: Sequence[RunGuard], view: RunView, context: GuardContext, ask: Ask) -> StageResult:
    """Ask the guards in order.

    (1) A guard that raises, or answers anything but a report, blocks.
    (2) `block` ends the stage.
    (3) `require_approval` goes on only after a person said so.
    (4) `sanitize` and labels change what the next guard sees.
    """
    rows: list[GuardRow] = []
    strictest = Outcome.ALLOW
    for guard in guards:
        report = await _report(guard, view, context)
        rows.append(
            {
                "guard": guard.name,
                "outcome": report.outcome.word,
                "rules": sorted(set(report.rules)),
                "reason": report.reason.value,
            }
        )
        if report.outcome is Outcome.BLOCK:
            return _ended(view, report.reason, report.message, rows)
        if report.outcome is Outcome.REQUIRE_APPROVAL:
            allowed, reason = await ask(guard, report, view)
            if not allowed:
                return _ended(view, reason, "nobody let this run go on", rows)
        if report.outcome is Outcome.SANITIZE:
            strictest = Outcome.SANITIZE
        view = replace(
            view,
            messages=view.messages if report.messages is None else report.messages,
            documents=view.documents if report.documents is None else report.documents,
            output=view.output if report.output is None else report.output,
            labels={**view.labels, **report.labels},
            vault={**view.vault, **report.vault},
        )
    return StageResult(view=view, outcome=strictest, rows=tuple(rows))


async def _report(guard: RunGuard, view: RunView, context: GuardContext) -> RunReport:
    try:
        answered: Any = guard.check(view, context)
        if inspect.isawaitable(answered):
            answered = await answered
    except Exception:
        # The text of a guard's own error may hold what it looked at, so it is logged by name alone.
        _log.error("a guard of a run failed", extra={"guard": guard.name})
        return _failed("the guard failed")
    if not isinstance(answered, RunReport):
        return _failed("the guard gave no report")
    changed = (answered.messages, answered.documents, answered.output) != (None, None, None)
    if changed is not (answered.outcome is Outcome.SANITIZE):
        return _failed("the guard changed something without saying so, or said so and changed nothing")
    return answered


def _failed(message: str) -> RunReport:
    return RunReport(outcome=Outcome.BLOCK, reason=Reason.UNAVAILABLE, message=message)


def _ended(view: RunView, reason: Reason, message: str, rows: list[GuardRow]) -> StageResult:
    return StageResult(view=view, outcome=Outcome.BLOCK, reason=reason, message=message, rows=tuple(rows))
