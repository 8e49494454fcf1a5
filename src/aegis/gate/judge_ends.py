"""How judge runs ended, until it is recorded: with the decision that they led to, or by itself where there is none.

A run that was started stands in the store until its end is on record. Its end is written once: what was ended as
`lost` meanwhile, or in another transaction, is not ended again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from msgspec import structs

from aegis.audit.writer import Unit
from aegis.core.decision import Decision
from aegis.core.ports import Transaction
from aegis.core.receipt import Draft, Recorded
from aegis.errors import StoreError
from aegis.gate.commits import Commits

End = Callable[[Transaction], Sequence[Draft]]
Submit = Callable[[Any], Future[Any]]
Steps = Generator[Unit, tuple[Recorded, ...], Decision]


def with_ends(unit: Unit, ends: Sequence[End]) -> Unit:
    """`unit` with the ends before it, all in one transaction; the unit's own refusal comes before any write."""
    if not ends:
        return unit
    first, drafts = unit.apply, unit.drafts

    def apply(transaction: Transaction) -> Sequence[Draft]:
        more = () if first is None else first(transaction)
        return [*(draft for end in ends for draft in end(transaction)), *drafts, *more]

    return structs.replace(unit, drafts=(), apply=apply)


class Ends:
    """The ends that wait for the record of one call's decision.

    Used as a context around that record: what it did not take with it is recorded by itself.
    """

    def __init__(self, commits: Commits, submit: Submit):
        self._commits = commits
        self._submit = submit
        self._kept: list[End] = []

    def keep(self, end: End) -> None:
        """Wait with this end."""
        self._kept.append(end)

    def take(self) -> list[End]:
        """Every end that waits, for a unit that will be recorded now."""
        taken, self._kept = self._kept, []
        return taken

    async def flush(self) -> None:
        """Record what waits by itself; raises `StoreError`."""
        ends = self.take()
        if ends:
            await self._commits.append(with_ends(Unit(), ends))

    def along(self, steps: Steps) -> Steps:
        """`steps`, whose one unit takes with it what waits; they see of what was recorded only what is theirs."""
        unit = next(steps)
        own = unit.drafts[0].members["receipt_id"]
        recorded = yield with_ends(unit, self._kept)
        self._kept = []
        position = [one.receipt_id for one in recorded].index(own)
        try:
            steps.send(recorded[position:])
        except StopIteration as stop:
            decision: Decision = stop.value
            return decision
        raise RuntimeError("a decision is recorded by one unit")

    def close(self) -> None:
        """Record by itself what still waits."""
        if self._kept:
            self._submit(self._alone())

    def __enter__(self) -> Ends:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def _alone(self) -> None:
        try:
            await self.flush()
        except StoreError:  # the runs stand in the store, and are ended as `lost` once it is back
            return
