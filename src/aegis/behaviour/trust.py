"""How far an agent has earned trust: a Beta reputation from what became of its calls, with decay. Pure.

Every outcome counts for or against, and half as much a week later; who did nothing yet stands in the middle. It is
shown with its days, and loosens nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from aegis.core.ports import Entry
from aegis.core.times import MICROS, rfc3339

HALF_LIFE_US: Final = 7 * 86_400 * MICROS
MAX_DAYS: Final = 30  # of the history that is shown
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
