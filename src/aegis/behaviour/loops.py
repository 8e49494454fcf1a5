"""Calls that go round in circles: the same again, the same but for numbers, and two tools that answer each other.

What a session (or an agent without one) called last is remembered by each process, as fingerprints: bounded for one
session and over all of them. A person who lets a held call run lets it be made as often again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from aegis.approvals.queue import find
from aegis.core.behaviour import LoopRules, Times
from aegis.core.finding import Finding, Report
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.ports import Store
from aegis.gate.control import session_subject
from aegis.gate.participants import DecisionAttempt
from aegis.gate.record import Subject
from aegis.gate.repeat import Known
from aegis.policy.model import observed

GUARD: Final = "loops"
MAX_SESSIONS: Final = 10_000  # sessions that are remembered at once: bounds memory against made-up names
MAX_CALLS: Final = 256  # different calls of one session that are remembered
MAX_READ: Final = 4_096  # bytes of arguments that are compared but for their numbers


class LoopStep(NamedTuple):
    """One call as loops see it; fingerprints are this process's own."""

    time: int
    call_id: str
    exact: int
    similar: int
    tool: str


_NOTHING: Final = LoopStep(0, "", 0, 0, "")


class Trail:
    """What one session called last: by fingerprint the times that its rule needs, and how long two calls alternate."""

    __slots__ = ("_before", "_last", "_run", "_times")

    def __init__(self) -> None:
        self._times: OrderedDict[int, deque[int]] = OrderedDict()
        self._last = self._before = _NOTHING
        self._run = 0  # how many calls in a row were the one before the last again

    def enter(self, step: LoopStep, rules: LoopRules) -> tuple[str, int] | None:
        """Remember a call: the rule that it breaks, and the count that it goes beyond.

        A call that was entered just now counts once, however often it is decided.
        """
        is_new = step.call_id != self._last.call_id
        if is_new:
            if self._last.time > step.time:  # a clock that is set back makes nothing younger
                step = step._replace(time=self._last.time)
            answers = step.tool != self._last.tool and step.similar == self._before.similar
            self._run = self._run + 1 if answers and step.time - self._last.time <= rules.alternating.within else 0
            self._before, self._last = self._last, step
        for name, fingerprint, times in (
            ("identical", step.exact, rules.identical),
            ("similar", step.similar, rules.similar),
        ):
            if times.count and self._is_beyond(fingerprint, times, step.time, enters=is_new):
                return name, times.count
        rounds = (self._run + 2) // 2
        if rules.alternating.count and rounds > rules.alternating.count:
            return "alternating", rules.alternating.count
        return None

    def release(self, step: LoopStep) -> None:
        """Count from here on: a person let it go on."""
        self._times.pop(step.exact, None)
        self._times.pop(step.similar, None)
        self._run = 0

    def _is_beyond(self, fingerprint: int, times: Times, now: int, *, enters: bool) -> bool:
        """Whether there are more than `times.count` of it within the time."""
        moments = self._times.get(fingerprint)
        if moments is None or moments.maxlen != times.count + 1:
            moments = self._times[fingerprint] = deque(moments or (), maxlen=times.count + 1)
            if len(self._times) > MAX_CALLS:
                self._times.popitem(last=False)
        if enters:
            moments.append(now)
            self._times.move_to_end(fingerprint)
        return len(moments) > times.count and moments[0] > now - times.within


class Loops:
    """Remembers what sessions called, and reports calls that go round in circles."""

    def __init__(self, store: Store, clock: Callable[[], int]):
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._trails: OrderedDict[str, Trail] = OrderedDict()

    def report(self, asked: DecisionAttempt, rules: LoopRules) -> Report | None:
        """The report on one call; `None` where it is no loop."""
        subject = asked.subject
        step = step_of(subject, self._clock())
        with self._lock:
            trail = self._trail(subject)
            if asked.known is not None:
                if held_and_released(self._store, asked.known, Reason.LOOP):
                    trail.release(step)
                return None
            found = trail.enter(step, rules)
        if found is None:
            return None
        report = _report(*found)
        return observed(report) if rules.mode == "observe" else report

    def _trail(self, subject: Subject) -> Trail:
        key = session_subject(subject.principal.id, subject.session)
        trail = self._trails.get(key)
        if trail is None:
            trail = self._trails[key] = Trail()
            if len(self._trails) > MAX_SESSIONS:
                self._trails.popitem(last=False)
        else:
            self._trails.move_to_end(key)
        return trail


def held_and_released(store: Store, known: Known, reason: Reason) -> bool:
    """Whether a person let this very call go on, which was held for `reason`."""
    decision = known.decision
    if decision is None or decision.reason is not reason or decision.approval is None:
        return False
    with store.reader() as reader:
        approval = find(reader, decision.approval.id)
    return approval is not None and approval.state == "approved"


def step_of(subject: Subject, now: int) -> LoopStep:
    """One call as loops see it."""
    call = subject.call
    bare = subject.canonical[:MAX_READ].translate(None, b"0123456789")
    return LoopStep(
        now, subject.call_id, hash(subject.request_digest), hash((call.server, call.tool, bare, "similar")), call.tool
    )


_SAID: Final = {
    "identical": "the same call was made more than {count} times within a short time",
    "similar": "a call that differs in numbers alone was made more than {count} times within a short time",
    "alternating": "two tools answered each other more than {count} times in a row",
}


def _report(name: str, count: int) -> Report:
    return Report(
        guard=GUARD,
        outcome=Outcome.REQUIRE_APPROVAL,
        verdict=Verdict.COMPLIANT,
        reason=Reason.LOOP,
        risk=Risk.MEDIUM,
        findings=(
            Finding(
                guard=GUARD,
                rule=f"loop-{name}",
                category="rate",
                severity=Risk.MEDIUM,
                outcome=Outcome.REQUIRE_APPROVAL,
                message=_SAID[name].format(count=count),
            ),
        ),
    )
