"""The rate guard: exact sliding windows per authenticated agent, of calls and of their bytes.

A window counts the calls of every process on one log: a process begins with the newest receipts and takes
up what others decided when it records, so that each further process may let one call more through, and those
that several decide in the same moment. Calls that the guard refuses are not counted, so that a caller that waits
gets through. Bytes are counted by each process for itself, of calls and of results. Processes of one gateway count
calls and bytes together, in books that they share, and exactly.
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol

from aegis.core.finding import Finding, Report
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.policy.guards.base import Case
from aegis.store.shared import Book, Counted, key_of

MAX_LIMIT: Final = 100_000  # times kept for one agent: bounds what one configuration can make us store
MAX_AGENTS: Final = 10_000  # agents counted at once: a flood of names cannot grow memory without end
MAX_BYTES: Final = 2**40  # the largest rate of bytes that can be meant
_SLOTS: Final = 60  # parts of its time that a window of bytes counts apart: bounds what it remembers of one agent
PERIODS: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_MICROS: Final = 1_000_000

_QUIET: Final = Report(guard="rate")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """At most `limit` calls in any `seconds` seconds."""

    limit: int
    seconds: int

    def __post_init__(self) -> None:
        if not 0 < self.limit <= MAX_LIMIT:
            raise ValueError(f"a rate is between 1 and {MAX_LIMIT} calls")


@dataclass(frozen=True, kw_only=True, slots=True)
class ByteRate:
    """Calls and results of at most `limit` bytes in any `seconds` seconds."""

    limit: int
    seconds: int

    def __post_init__(self) -> None:
        if not 0 < self.limit <= MAX_BYTES:
            raise ValueError(f"a rate of bytes is between 1 and {MAX_BYTES}")


class RatesElsewhere(Protocol):
    """Calls that other processes counted."""

    @property
    def moved(self) -> bool:
        """Whether there are some that were not taken."""
        ...

    def take(self, since: int) -> Iterable[tuple[str, int]]:
        """The agents and times (microseconds, not before `since`) of calls not taken before, in order of time."""
        ...


class Windows:
    """The times of the counted calls, by agent; kept when a configuration is replaced by another.

    An agent that is there has at least one time: it is entered with its first counted call.
    """

    def __init__(self) -> None:
        self._elsewhere: RatesElsewhere | None = None
        self._times: OrderedDict[str | bytes, deque[int]] = OrderedDict()
        self._bytes: OrderedDict[str | bytes, deque[tuple[int, int]]] = OrderedDict()
        self._lock = Lock()
        self._process = os.getpid()
        self._books: tuple[Book, Book] | None = None

    def share(self, calls: Book, sizes: Book) -> None:
        """Count from now on together with the other processes of this gateway."""
        self._books = (calls, sizes)

    def follow(self, elsewhere: RatesElsewhere) -> None:
        """Count from now on also what others counted."""
        self._elsewhere = elsewhere

    def charge(self, agent: str, now: int, rate: Rate) -> int:
        """Count a call at `now` (microseconds) and answer 0, or answer the microseconds until it would fit."""
        self._check_process()
        span = rate.seconds * _MICROS
        with self._lock:
            if self._elsewhere is not None and self._elsewhere.moved:
                for other, moment in self._elsewhere.take(now - span):
                    self._enter(key_of(other) if self._books else other, moment, span)
            if self._books is None:
                return self._charge(agent, now, rate.limit, span)
            key = key_of(agent)
            with self._books[0] as book:
                for one in book.others():
                    self._enter(one.key, one.time, span)
                wait = self._charge(key, now, rate.limit, span)
                if not wait:
                    book.write(Counted(key, now))
                return wait

    def _charge(self, agent: str | bytes, now: int, limit: int, span: int) -> int:
        times = self._times.get(agent)
        if times is None:
            if len(self._times) >= MAX_AGENTS and (wait := self._make_room(now, span)):
                return wait
            times = self._times[agent] = deque()
        # (1) Time never runs backwards here: a clock that is set back frees no place.
        elif times[-1] > now:
            now = times[-1]
        # (2) Forget what left the window.
        start = now - span
        while times and times[0] <= start:
            times.popleft()
        # (3) A full window answers when its oldest call leaves it.
        if len(times) >= limit:
            return times[len(times) - limit] + span - now
        times.append(now)
        self._times.move_to_end(agent)
        return 0

    def wait_for_bytes(self, agent: str, now: int, rate: ByteRate) -> int:
        """The microseconds until bytes of this agent fit again; 0 where some of the window is free.

        What is larger than the window still fits into an empty one: it is only what follows that waits.
        """
        self._check_process()
        span = rate.seconds * _MICROS
        with self._lock:
            if self._books is not None:
                with self._books[1] as book:
                    for one in book.others():
                        self._enter_bytes(one.key, one.time, one.a, span)
            slots = self._bytes.get(key_of(agent) if self._books else agent)
            if not slots:
                return 0
            inside = [(until, size) for until, size in slots if until > now - span]
            held = sum(size for _, size in inside)
            if held < rate.limit:
                return 0
            for until, size in inside:
                held -= size
                if held < rate.limit:
                    return until + span - now
            return span

    def charge_bytes(self, agent: str, now: int, size: int, rate: ByteRate) -> None:
        """Count `size` bytes at `now`."""
        self._check_process()
        span = rate.seconds * _MICROS
        with self._lock:
            if self._books is None:
                self._enter_bytes(agent, now, size, span)
                return
            key = key_of(agent)
            with self._books[1] as book:
                for one in book.others():
                    self._enter_bytes(one.key, one.time, one.a, span)
                self._enter_bytes(key, now, size, span)
                book.write(Counted(key, now, size))

    def _enter_bytes(self, agent: str | bytes, now: int, size: int, span: int) -> None:
        slots = self._bytes.get(agent)
        if slots is None:
            while len(self._bytes) >= MAX_AGENTS:
                self._bytes.popitem(last=False)
            slots = self._bytes[agent] = deque()
        slot = span // _SLOTS
        until = now - now % slot + slot
        if slots and slots[-1][0] >= until:  # a clock that is set back frees no place
            until, before = slots.pop()
            size += before
        slots.append((until, size))
        while slots[0][0] <= now - span:
            slots.popleft()
        self._bytes.move_to_end(agent)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            # Another thread may have held the lock at the fork; the child has one thread and a new lock.
            self._lock, self._process = Lock(), os.getpid()

    def _enter(self, agent: str | bytes, moment: int, span: int) -> None:
        """Count a call that somebody else let through."""
        times = self._times.get(agent)
        if times is None:
            if len(self._times) >= MAX_AGENTS and self._make_room(moment, span):
                return  # as many agents are inside the window as are counted: a further one is refused
            times = self._times[agent] = deque()
        times.append(max(moment, times[-1]) if times else moment)
        if len(times) > MAX_LIMIT:
            times.popleft()
        self._times.move_to_end(agent)

    def _make_room(self, now: int, span: int) -> int:
        """Drop the agent that was counted longest ago; the wait where even that one is inside the window."""
        oldest, times = next(iter(self._times.items()))
        if times[-1] > now - span:
            return times[-1] + span - now
        del self._times[oldest]
        return 0


class RateGuard:
    """Refuses the calls of an agent beyond its rates, and says when the next one fits."""

    name = "rate"

    def __init__(self, rate: Rate | None, windows: Windows | None = None, *, byte_rate: ByteRate | None = None):
        self._rate = rate
        self._byte_rate = byte_rate
        self._windows = windows or Windows()
        self.idle = rate is None and byte_rate is None

    def check(self, case: Case) -> Report:
        """One charge a check: run once a call, however often the call is analysed."""
        agent, windows = case.principal.agent or case.principal.id, self._windows
        if self._byte_rate is not None:
            wait = windows.wait_for_bytes(agent, case.now, self._byte_rate)
            if wait > 0:
                return _refused("byte-rate-limit", "the agent sent more bytes than its rate allows", wait)
        if self._rate is not None:
            wait = windows.charge(agent, case.now, self._rate)
            if wait > 0:
                return _refused("rate-limit", "the agent made more calls than its rate allows", wait)
        if self._byte_rate is not None:
            windows.charge_bytes(agent, case.now, case.size, self._byte_rate)
        return _QUIET

    def charge_result(self, agent: str, now: int, size: int) -> int:
        """Count the bytes of a result and answer 0, or answer the seconds until they would fit."""
        if self._byte_rate is None:
            return 0
        wait = self._windows.wait_for_bytes(agent, now, self._byte_rate)
        if wait <= 0:
            self._windows.charge_bytes(agent, now, size, self._byte_rate)
        return -(-wait // _MICROS)


def _refused(rule: str, message: str, wait: int) -> Report:
    return Report(
        guard=RateGuard.name,
        outcome=Outcome.BLOCK,
        verdict=Verdict.VIOLATION,
        reason=Reason.RATE_LIMITED,
        findings=(
            Finding(
                guard=RateGuard.name,
                rule=rule,
                category="rate",
                severity=Risk.LOW,
                outcome=Outcome.BLOCK,
                message=message,
            ),
        ),
        retry_after=-(-wait // _MICROS),
    )
