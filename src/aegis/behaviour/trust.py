"""How far an agent has earned trust: a Beta reputation from what became of its calls, with decay.

Every outcome counts for or against, and half as much a week later; who did nothing yet stands in the middle. It is
shown with its days, and loosens nothing: policies that forbid may read it (`context.agent.trust`), and no others.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from aegis.core.ports import Clock, Entry, Search, Store
from aegis.core.times import MICROS, rfc3339
from aegis.gate.participants import Part

HALF_LIFE_US: Final = 7 * 86_400 * MICROS
MAX_DAYS: Final = 30  # of the history that is shown
LOOKED_AT: Final = 1_000  # newest decisions of an agent that its trust is made of
FRESH_US: Final = 5 * MICROS  # how long what policies are shown may be old
MAX_AGENTS: Final = 10_000  # agents whose trust is remembered: bounds memory against made-up names
_DAY_US: Final = 86_400 * MICROS
# For and against. An attack outweighs a day of work; what a person released was looked at.
_ALLOWED: Final = (0.05, 0.0)
_HELD: Final = (0.0, 0.1)
_BLOCKED: Final = (0.0, 0.5)
_AGAINST: Final = {
    "attack_detected": (0.0, 3.0),
    "anomaly": (0.0, 0.5),
    "revoked": (0.0, 0.0),
    "rate_limited": (0.0, 0.1),
}


class AgentTrust(NamedTuple):
    """Trust from 0 to 100, what speaks for and against, and the trust at the end of each day."""

    score: int
    good: float
    bad: float
    days: tuple[tuple[str, int], ...]


def trust_of(entries: Sequence[Entry]) -> AgentTrust:
    """The trust in one agent, from its decisions in the order of their time."""
    good = bad = 0.0
    last = entries[0].time if entries else 0
    days: dict[int, int] = {}
    for entry in entries:
        factor = 0.5 ** (max(0, entry.time - last) / HALF_LIFE_US)
        last = max(last, entry.time)
        plus, minus = _weight(entry)
        good, bad = good * factor + plus, bad * factor + minus
        days[entry.time // _DAY_US] = _score(good, bad)
    shown = tuple((rfc3339(day * _DAY_US)[:10], score) for day, score in sorted(days.items())[-MAX_DAYS:])
    return AgentTrust(_score(good, bad), round(good, 2), round(bad, 2), shown)


def _score(good: float, bad: float) -> int:
    return round(100 * (1 + good) / (2 + good + bad))


def _weight(entry: Entry) -> tuple[float, float]:
    if entry.decision in ("allow", "sanitize"):
        return _ALLOWED
    otherwise = _BLOCKED if entry.decision == "block" else _HELD
    return _AGAINST.get(entry.reason, otherwise)


class ShownTrust(Part):
    """The trust in the agent of one call, for the policies that read it."""

    __slots__ = ("_score",)

    def __init__(self, score: int):
        self._score = score

    def shows(self) -> Mapping[str, Any]:
        return {"trust": self._score}


class AgentTrusts:
    """The trust in agents as policies are shown it: from the log, at most a few seconds old."""

    def __init__(self, store: Store, clock: Clock):
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def score(self, agent: str) -> int:
        """The trust in one agent now, from 0 to 100."""
        now = self._clock()
        known = self._known.get(agent)
        if known is not None and 0 <= now - known[0] < FRESH_US:
            return known[1]
        with self._store.reader() as reader:
            newest = reader.search(Search(kind="decision", agent=agent, limit=LOOKED_AT))
        score = trust_of(newest[::-1]).score
        with self._lock:
            self._known[agent] = (now, score)
            self._known.move_to_end(agent)
            if len(self._known) > MAX_AGENTS:
                self._known.popitem(last=False)
        return score
