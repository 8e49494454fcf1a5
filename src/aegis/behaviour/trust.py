"""How far an agent has earned trust: a Beta reputation from what became of its calls, with decay.

Every outcome counts for or against, and half as much a week later; who did nothing yet stands in the middle. What
people answer counts more than what nobody looked at. It is shown with its days, and loosens nothing: policies that
forbid may read it (`context.agent.trust`, `select.trust_below`), and no others.

Attacks by agents of one program count against each of them, up to as much as one attack of its own. Nothing good is
shared: the score with what others did is never above the score without.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from aegis.behaviour.usual import program_of
from aegis.core.decision import Decision
from aegis.core.ports import Clock, Entry, Reader, Search, Store, never_came
from aegis.core.receipt import Recorded
from aegis.core.times import MICROS, rfc3339
from aegis.gate.participants import DecisionRecord, Part

HALF_LIFE_US: Final = 7 * 86_400 * MICROS
MAX_DAYS: Final = 30  # of the history that is shown
LOOKED_AT: Final = 1_000  # newest decisions of an agent that its trust is made of
FRESH_US: Final = 5 * MICROS  # how long what policies are shown may be old
MAX_AGENTS: Final = 10_000  # agents whose trust is remembered: bounds memory against made-up names
_DAY_US: Final = 86_400 * MICROS
ATTACK: Final = "attack_detected"
# For and against. An attack outweighs a day of work; what a person released was looked at.
_ALLOWED: Final = (0.05, 0.0)
_NOTHING: Final = (0.0, 0.0)
_HELD: Final = (0.0, 0.1)
_BLOCKED: Final = (0.0, 0.5)
_AGAINST: Final = {
    ATTACK: (0.0, 3.0),
    "anomaly": (0.0, 0.5),
    "revoked": (0.0, 0.0),
    "rate_limited": (0.0, 0.1),
}
# A call that ran and was unlike what its agent usually does.
_NOTED: Final = (0.05, 0.2)
_UNUSUAL: Final = b'"unusual"'
# What a person answered to a held call.
_ANSWERED: Final = {"approved": (0.3, 0.0), "denied": (0.0, 1.0)}
# Results without the signature that was asked for, or that did not do what was promised.
_UNATTESTED: Final = {"insufficient_evidence": (0.0, 0.5), "postcondition_failed": (0.0, 1.0)}
_SHARED: Final = 0.3  # of one attack of another agent of the program
MAX_SHARED: Final = 3.0


class AgentTrust(NamedTuple):
    """Trust from 0 to 100, what speaks for and against, and the trust at the end of each day."""

    score: int
    good: float
    bad: float
    days: tuple[tuple[str, int], ...]


def trust_of(entries: Sequence[Entry], others: Sequence[Entry] = ()) -> AgentTrust:
    """The trust in one agent, from its receipts and the attacks of others of its program, in the order of the log."""
    good = bad = shared = 0.0
    last = shared_at = 0
    days: dict[int, int] = {}
    own = {entry.index for entry in entries}
    for entry in sorted((*entries, *others), key=lambda one: one.index):
        shared *= _decay(entry.time - shared_at)
        shared_at = max(shared_at, entry.time)
        if entry.index in own:
            factor = _decay(entry.time - last)
            last = max(last, entry.time)
            plus, minus = _weight(entry)
            good, bad = good * factor + plus, bad * factor + minus
        else:  # what others did neither adds to what speaks for the agent nor ages what speaks against it
            shared = min(MAX_SHARED, shared + _SHARED)
        days[entry.time // _DAY_US] = _score(good, bad + shared)
    shown = tuple((rfc3339(day * _DAY_US)[:10], score) for day, score in sorted(days.items())[-MAX_DAYS:])
    return AgentTrust(_score(good, bad + shared), round(good, 2), round(bad + shared, 2), shown)


def _decay(passed: int) -> float:
    return math.pow(0.5, max(0, passed) / HALF_LIFE_US)


def trust_in(reader: Reader, agent: str) -> AgentTrust:
    """The trust in one agent by the log: its newest decisions and answers, its results, its program's attacks."""
    own = reader.search(Search(kind="decision", agent=agent, limit=LOOKED_AT))
    own += reader.search(Search(kind="approval", agent=agent, limit=LOOKED_AT))
    for reason in _UNATTESTED:
        own += reader.search(Search(kind="result", agent=agent, reason=reason, limit=LOOKED_AT))
    program = program_of(agent)
    attacks = reader.search(Search(kind="decision", reason=ATTACK, limit=LOOKED_AT)) if program else []
    return trust_of(own, [one for one in attacks if one.agent != agent and program_of(one.agent) == program])


def _score(good: float, bad: float) -> int:
    return round(100 * (1 + good) / (2 + good + bad))


def _weight(entry: Entry) -> tuple[float, float]:
    if entry.kind == "result":
        return _NOTHING if never_came(entry) else _UNATTESTED.get(entry.reason, _NOTHING)
    if entry.kind == "approval":
        members = orjson.loads(entry.body)
        # What evidence or an earlier answer released is nobody's answer to this call.
        by_person = entry.principal in members.get("approvers", ())
        return _ANSWERED.get(members.get("action", ""), _NOTHING) if by_person else _NOTHING
    if entry.decision in ("allow", "sanitize"):
        return _NOTED if _UNUSUAL in entry.body else _ALLOWED
    otherwise = _BLOCKED if entry.decision == "block" else _HELD
    return _AGAINST.get(entry.reason, otherwise)


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
            score = trust_in(reader, agent).score
        with self._lock:
            self._known[agent] = (now, score)
            self._known.move_to_end(agent)
            if len(self._known) > MAX_AGENTS:
                self._known.popitem(last=False)
        return score

    def forget(self, agent: str) -> None:
        """Read the trust in an agent again for its next call: something was just held against it."""
        with self._lock:
            self._known.pop(agent, None)


class ShownTrust(Part):
    """The trust in the agent of one call, for the policies that read it."""

    __slots__ = ("_agent", "_score", "_trusts")

    def __init__(self, trusts: AgentTrusts, agent: str):
        self._trusts = trusts
        self._agent = agent
        self._score = trusts.score(agent)

    def shows(self) -> Mapping[str, Any]:
        return {"trust": self._score}

    def release(self, decision: Decision, recorded: Sequence[Recorded], record: DecisionRecord) -> Decision:
        if not decision.allowed:
            self._trusts.forget(self._agent)
        return decision
