"""Who listens to a run while it runs, and what of its answer may be heard before the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aegis.runs.guard import Pieces, PiecewiseGuard
from aegis.runs.plan import Plan

Hear = Callable[[str], None]
"""Gets the pieces of a run's answer as they come; must return at once."""

_BETWEEN_TURNS = "\n\n"


class Hearing:
    """What one listener hears of one run: the text of every turn, a blank line between two.

    Nothing is heard where a guard of answers has to see all of it first.
    """

    def __init__(self, plan: Plan, hear: Hear) -> None:
        guards = (*plan.guards["egress"], *plan.guards["finalize"])
        self._guards = [guard for guard in guards if isinstance(guard, PiecewiseGuard)]
        self._hear = hear
        self.open = len(self._guards) == len(guards)
        self.heard = False

    def turn(self, vault: Mapping[str, str]) -> Turn:
        """One answer of a model, under the placeholders of this time."""
        return Turn(self, [guard.pieces(vault) for guard in self._guards])

    def pass_on(self, text: str) -> None:
        """Let the listener hear this."""
        if text:
            self.heard = True
            self._hear(text)


class Turn:
    """One answer on its way to the listener."""

    def __init__(self, hearing: Hearing, stages: list[Pieces]) -> None:
        self._hearing = hearing
        self._stages = stages
        self._before = _BETWEEN_TURNS if hearing.heard else ""
        self.begun = False

    def feed(self, text: str) -> None:
        """The next piece as the model wrote it."""
        for stage in self._stages:
            text = stage.feed(text)
        self._pass_on(text)

    def end(self) -> None:
        """The answer came to its end: what was held back goes on."""
        for at, stage in enumerate(self._stages):
            text = stage.end()
            for following in self._stages[at + 1 :]:
                text = following.feed(text)
            self._pass_on(text)

    def _pass_on(self, text: str) -> None:
        if text:
            self.begun = True
            self._hearing.pass_on(self._before + text)
            self._before = ""
