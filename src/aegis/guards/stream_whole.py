"""Conditions that need the whole of a stream: it is held up to a bound, and judged when it ends.

Nothing of a stream is passed on before such a condition is judged. A stream that grows beyond the bound
cannot be judged: it goes on, or ends there, as the policy for missing evidence says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aegis.core.mission import Postcondition
from aegis.guards.postconditions import is_from_allowed, is_shaped

WHOLE_BYTES: Final = 1_048_576  # what is held for such a condition: bounds memory, and is what results are read to


class Whole:
    """What one stream says, as far as it is kept; `framed` says that pieces come with the texts at their places."""

    def __init__(self, conditions: Sequence[Postcondition], *, framed: bool):
        self._conditions = conditions
        self._framed = framed
        self._texts: dict[str, list[bytes]] = {}
        self._size = 0
        # Frames are an envelope of many values: a schema of the result says nothing about them.
        self.unjudged = tuple(one.id for one in conditions if framed and one.check == "schema")

    @property
    def is_held(self) -> bool:
        """Whether everything that came may still be judged."""
        return bool(self._conditions) and not self.unjudged

    def take(self, size: int, texts: Mapping[str, bytes]) -> None:
        """Keep what a piece of `size` bytes says; beyond the bound nothing is kept, and all are `unjudged`."""
        if not self.is_held:
            return
        self._size += max(size, sum(map(len, texts.values())))
        if self._size > WHOLE_BYTES:
            self._texts.clear()
            self.unjudged = tuple(one.id for one in self._conditions)
            return
        for place, text in texts.items():
            self._texts.setdefault(place, []).append(text)

    def failed(self) -> tuple[Postcondition, ...]:
        """The conditions that the whole does not meet."""
        if not self.is_held:
            return ()
        said = [b"".join(parts).decode("utf-8", "replace") for parts in self._texts.values()]
        return tuple(
            one
            for one in self._conditions
            if not (is_from_allowed(said, one) if one.check == "allowed_sources" else is_shaped("".join(said), one))
        )
