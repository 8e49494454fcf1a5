"""Calls that go round in circles: the same again, the same but for numbers, and two tools that answer each other.

What a session (or an agent without one) called last is remembered by each process, as fingerprints: bounded for one
session and over all of them. Processes of one gateway tell each other, in one order. A person who lets a held call run
lets it be made as often again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from msgspec import Struct, structs

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
from aegis.store.shared import CountBook, Counted, key_of

GUARD: Final = "loops"
MAX_SESSIONS: Final = 10_000  # sessions that are remembered at once: bounds memory against made-up names
MAX_CALLS: Final = 256  # different calls of one session that are remembered
MAX_HELD: Final = 200_000  # calls of all sessions together: some 20 MB
MAX_READ: Final = 4_096  # bytes of arguments that are compared but for their numbers


class LoopStep(Struct, frozen=True, gc=False):
    """One call as loops see it; fingerprints are this gateway's own."""

    time: int
    call_id: str | int
    exact: int
    similar: int
    tool: str | int


_NOTHING: Final = LoopStep(0, "", 0, 0, "")
_RELEASED: Final = -1  # in a book: a person let it go on


class Trail:
    """What one session called last: by fingerprint the times that its rule needs, and how long two calls alternate."""

    __slots__ = ("_before", "_last", "_run", "times")

    def __init__(self) -> None:
        self.times: dict[int, int | list[int]] = {}  # in the order in which they were made last
        self._last = self._before = _NOTHING
        self._run = 0  # how many calls in a row were the one before the last again

    def enter(self, step: LoopStep, rules: LoopRules) -> tuple[str, int] | None:
        """Remember a call: the rule that it breaks, and the count that it goes beyond.

        A call that was entered just now counts once, however often it is decided.
        """
        last = self._last
        if is_new := last.call_id != step.call_id:
            if last.time > step.time:  # a clock that is set back makes nothing younger
                step = structs.replace(step, time=last.time)
            answers = step.similar == self._before.similar and step.tool != last.tool
            self._run = self._run + 1 if answers and step.time - last.time <= rules.alternating.within else 0
            self._before, self._last = last, step
        times, now = self.times, step.time
        for name, fingerprint, allowed in (
            ("identical", step.exact, rules.identical),
            ("similar", step.similar, rules.similar),
        ):
            if is_new and allowed.count and fingerprint not in times:
                # Nearly every call is made once: it costs a number, and a list from the second time on.
                times[fingerprint] = now
                if len(times) > MAX_CALLS:
                    del times[next(iter(times))]
            elif allowed.count and self._is_beyond(fingerprint, allowed, now, is_new):
                return name, allowed.count
        if self._run < 2:
            return None
        rounds = (self._run + 2) // 2
        if rules.alternating.count and rounds > rules.alternating.count:
            return "alternating", rules.alternating.count
        return None

    def ends_with(self, step: LoopStep) -> bool:
        """Whether the last call is this very one, which counts once."""
        return self._last.call_id == step.call_id

    def release(self, step: LoopStep) -> None:
        """Count from here on: a person let it go on."""
        self.times.pop(step.exact, None)
        self.times.pop(step.similar, None)
        self._run = 0

    def _is_beyond(self, fingerprint: int, allowed: Times, now: int, is_new: bool) -> bool:
        """Whether a call was made more often than `allowed`; one that is new is counted, and remembered last of all."""
        count = allowed.count
        known = self.times.get(fingerprint)
        if known is not None and is_new:
            del self.times[fingerprint]
            known = [known] if isinstance(known, int) else known
            known.append(now)
            del known[: -count - 1]
            self.times[fingerprint] = known
        return isinstance(known, list) and len(known) > count and known[-count - 1] > now - allowed.within


class Loops:
    """Remembers what sessions called, and reports calls that go round in circles."""

    def __init__(self, store: Store, book: CountBook | None = None):
        self._store = store
        self._lock = threading.Lock()
        self._trails: OrderedDict[str | bytes, Trail] = OrderedDict()
        self._held = 0
        self._book = book  # of the processes of one gateway

    def report(self, asked: DecisionAttempt, rules: LoopRules, now: int) -> Report | None:
        """The report on one call that is made at `now`; `None` where it is no loop."""
        subject = asked.subject
        is_released = asked.known is not None
        if asked.known is not None and not held_and_released(self._store, asked.known, Reason.LOOP):
            return None
        step = step_of(subject, now)
        # A call without a session counts for its agent, whichever of its keys it came with.
        name = session_subject(subject.principal.id, subject.session) if subject.session else f"\n{subject.agent}"
        with self._lock:
            if self._book is None:
                found = self._enter(name, step, rules, is_released)
            else:
                found = self._enter_in(self._book, name, step, rules, is_released)
        if found is None:
            return None
        report = _report(*found)
        return observed(report) if rules.mode == "observe" else report

    def _enter_in(
        self, book: CountBook, name: str, step: LoopStep, rules: LoopRules, is_released: bool
    ) -> tuple[str, int] | None:
        """Enter what the other processes counted since, and then the call."""
        key = key_of(name)
        call, tool = hash(step.call_id), hash(step.tool)
        step = structs.replace(step, call_id=call, tool=tool)
        with book:
            for one in book.others():
                other = LoopStep(one.time, one.a, one.b, one.c, one.d)
                self._enter(one.key, other, rules, one.e == _RELEASED)
            known = self._trails.get(key)
            if is_released or known is None or not known.ends_with(step):
                book.write(Counted(key, step.time, call, step.exact, step.similar, tool, -is_released))
            return self._enter(key, step, rules, is_released)

    def _enter(self, key: str | bytes, step: LoopStep, rules: LoopRules, is_released: bool) -> tuple[str, int] | None:
        trails = self._trails
        trail = trails.get(key)
        if trail is None:
            trail = trails[key] = Trail()
            if len(trails) > MAX_SESSIONS:
                self._held -= len(trails.popitem(last=False)[1].times)
        else:
            trails.move_to_end(key)
        before, found = len(trail.times), None
        if is_released:
            trail.release(step)
        else:
            found = trail.enter(step, rules)
        self._held += len(trail.times) - before
        while self._held > MAX_HELD and len(trails) > 1:
            self._held -= len(trails.popitem(last=False)[1].times)
        return found


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
    call, tool = subject.call, subject.call.tool
    bare = subject.canonical[:MAX_READ].translate(None, b"0123456789")
    return LoopStep(now, subject.call_id, hash(subject.request_digest), hash((call.server, tool, bare)), tool)


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
