"""Turns of the Responses tool runner whose calls the host may answer itself, with `supply_outputs`.

The host runs those calls out of the turn that it is given, so they are decided before it gets it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from aegis.adapters._enforce import Enforced, Steps
from aegis.adapters._runner import Execution, RunnerGate

Refuse = Callable[[str, str], dict[str, Any]]


class OfferedTurns:
    """The turns of all runs, without the calls that must not run.

    `execution` says what a run is about to execute for an item, `refuse` makes the output of a refused call. What
    the host supplies is observed in the request that it is sent with.
    """

    def __init__(self, gate: RunnerGate, execution: Callable[[Any, Any], Execution], refuse: Refuse) -> None:
        self._gate = gate
        self._execution = execution
        self._refuse = refuse
        self._decided: WeakKeyDictionary[Any, dict[str, Enforced]] = WeakKeyDictionary()

    def each(self, turns: Generator[Any, None, None]) -> Generator[Any, None, None]:
        """Every turn as the host may see it."""
        with closing(turns):
            for turn in turns:
                yield self._gate.enforcer.run(self._offered(turn))

    async def aeach(self, turns: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """The async twin of `each`."""
        async with aclosing(turns):
            async for turn in turns:
                yield await self._gate.enforcer.arun(self._offered(turn))

    def decided(self, run: Any, call_id: str) -> Enforced | None:
        """What a call was allowed to run with when its turn was given to the host, if it was."""
        return self._decided.get(run, {}).pop(call_id, None)

    def _offered(self, turn: Any) -> Steps[Any]:
        run, supply = turn._supply.func.__self__, turn._supply
        eligible: frozenset[str] = supply.args[1]
        if not eligible:
            return turn
        items: list[Any] = []
        refused: dict[str, dict[str, Any]] = {}
        for item in turn.response.output:
            if item.type == "function_call" and item.call_id in eligible:
                outcome = yield from self._gate.before(self._execution(run, item))
                if isinstance(outcome, str):
                    refused[item.call_id] = self._refuse(item.call_id, outcome)
                    continue
                self._decided.setdefault(run, {})[item.call_id] = outcome
                item = item.model_copy(update={"arguments": outcome.body.decode()})
            items.append(item)
        run.supplied.update(refused)

        def supply_outputs(outputs: Sequence[Any]) -> None:
            supply(outputs)
            # They replace everything that was supplied before.
            run.supplied.update(refused)

        return replace(turn, response=turn.response.model_copy(update={"output": items}), _supply=supply_outputs)
