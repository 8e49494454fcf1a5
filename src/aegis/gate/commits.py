"""Driving steps: who waits for a commit, a thread or an event loop.

A thread commits by itself, with whoever waits beside it; the main thread, in which a signal can raise anywhere, has its
steps run by a driver that no signal reaches. An event loop collects what one tick brings into one durable commit, by
itself while commits are quick, else in a writer thread; where signals may raise, or over a store on another machine
(`Store.is_remote`), a driver does it, and every caller is answered within `COMMIT_WAIT_S`.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Generic, TypeVar

from aegis.core.receipt import Recorded
from aegis.errors import StoreBusy, StoreUnavailable, is_exhausted
from aegis.gate.parts import Slow
from aegis.log.writer import MAX_GROUP, MAX_WAITING, Answer, Ledger, Unit

R = TypeVar("R")
Steps = Generator[Unit | Slow[Any], tuple[Recorded, ...], R]
LOOKS: Final = 3  # turns of an event loop in which a group may grow before it is committed
SLOW_S: Final = 0.02  # a commit that takes longer is not waited for on the loop the next time
LARGE_BYTES: Final = 262_144  # payloads of one group that a writer thread takes, however quick commits were before
COMMIT_WAIT_S: Final = 10.0  # how long a caller waits for a commit before the store counts as gone

_Waiter = tuple[Unit, "asyncio.Future[tuple[Recorded, ...]]"]


class Commits:
    """Runs steps against one ledger."""

    def __init__(self, ledger: Ledger):
        self._ledger = ledger
        self._is_remote = ledger.is_remote
        self._signals_raise = True
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopWriter] = weakref.WeakKeyDictionary()
        self._driver = _Driver(ledger)
        self._looks = _Driver(ledger)  # who asks who somebody is does not wait for those who record
        for driver in (self._driver, self._looks):
            weakref.finalize(self, driver.end).atexit = False

    def run(self, steps: Steps[R]) -> R:
        """Drive `steps`: in this thread, or beside it where a signal could raise in the middle of them."""
        if threading.get_ident() == threading.main_thread().ident and not sys.is_finalizing():
            return _sheltered(self._driver, steps)
        try:
            unit = next(steps)
            while True:
                try:
                    recorded = unit.wait() if isinstance(unit, Slow) else self._ledger.append(unit)
                except Exception as error:
                    unit = steps.throw(error)
                else:
                    unit = steps.send(recorded)
        except StopIteration as stop:
            value: R = stop.value
            return value
        except Exception as error:
            if not is_exhausted(error):
                raise
            raise _refusal() from error
        finally:
            steps.close()  # a caller that is gone leaves nothing half done

    async def arun(self, steps: Steps[R]) -> R:
        """Drive `steps` for a task of the running loop."""
        if self._is_remote or (self._signals_raise and threading.get_ident() == threading.main_thread().ident):
            return await _aside(self._driver, steps)
        writer = self._writer()
        try:
            unit = next(steps)
            while True:
                try:
                    recorded = await (unit.arrive() if isinstance(unit, Slow) else writer.submit(unit))
                except Exception as error:
                    unit = steps.throw(error)
                else:
                    unit = steps.send(recorded)
        except StopIteration as stop:
            value: R = stop.value
            return value
        except Exception as error:
            if not is_exhausted(error):
                raise
            raise _refusal() from error
        finally:
            steps.close()

    def expect_no_interruptions(self) -> None:
        """Let event loops commit by themselves in the main thread too: no handler of a signal raises there."""
        self._signals_raise = False

    def look(self, work: Callable[[], R]) -> R:
        """What `work` returns, which reads the store."""
        return self.run(_only(work))

    async def alook(self, work: Callable[[], R]) -> R:
        """`look` for a task of the running loop; raises `StoreUnavailable` where a store elsewhere is silent."""
        if self._is_remote:
            return await _aside(self._looks, _only(work))
        return work()

    async def append(self, unit: Unit) -> tuple[Recorded, ...]:
        """Record one unit from an event loop."""
        return await self.arun(_recording(unit))

    def append_sync(self, unit: Unit) -> tuple[Recorded, ...]:
        """Record one unit from a thread."""
        return self.run(_recording(unit))

    @property
    def depth(self) -> int:
        """How many units wait for a commit."""
        return self._ledger.depth + self._driver.depth + sum(writer.depth for writer in self._loops.values())

    def close(self) -> None:
        """End the threads; what was handed in before is still recorded."""
        self._driver.close()
        self._looks.close()
        for writer in list(self._loops.values()):
            writer.close()

    def _writer(self) -> _LoopWriter:
        loop = asyncio.get_running_loop()
        writer = self._loops.get(loop)
        if writer is None:
            writer = self._loops[loop] = _LoopWriter(self._ledger, loop)
        return writer


class _LoopWriter:
    """The writer of one event loop, with a thread for slow times."""

    def __init__(self, ledger: Ledger, loop: asyncio.AbstractEventLoop):
        self._ledger = ledger
        self._loop = weakref.ref(loop)
        self._tick: list[_Waiter] = []
        self._handed: queue.SimpleQueue[list[_Waiter] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._slow = False
        self._thread: threading.Thread | None = None

    @property
    def depth(self) -> int:
        return self._waiting

    async def submit(self, unit: Unit) -> tuple[Recorded, ...]:
        if self._waiting >= MAX_WAITING:
            raise StoreUnavailable("too many calls wait for the log")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[Recorded, ...]] = loop.create_future()
        if not self._tick:
            loop.call_soon(self._flush, 1, LOOKS)
        self._tick.append((unit, future))
        self._waiting += 1
        try:
            return await future
        finally:
            self._waiting -= 1

    def close(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._handed.put(None)
            self._thread.join(COMMIT_WAIT_S)

    def _flush(self, seen: int, looks: int) -> None:
        """Commit what was collected, once a turn of the loop brought nothing more: a group costs one flush of the disk.

        Whoever is alone does not wait; nobody waits for more than `LOOKS` turns.
        """
        if seen < len(self._tick) < MAX_GROUP and looks:
            asyncio.get_running_loop().call_soon(self._flush, len(self._tick), looks - 1)
            return
        batch, self._tick = self._tick, []
        while batch:
            group = batch[:MAX_GROUP]
            try:
                answers = None if self._slow or _is_large(group) else self._commit(group, wait_s=SLOW_S)
            except StoreBusy:  # the loop does not wait for other writers
                answers = None
            if answers is None:
                self._slow = True
                self._hand_over(batch)
                return
            _settle(group, answers)
            batch = batch[MAX_GROUP:]

    def _hand_over(self, batch: list[_Waiter]) -> None:
        if self._thread is None or not self._thread.is_alive():  # first use, or this is a forked child
            self._handed = queue.SimpleQueue()
            thread = threading.Thread(target=self._work, name="aegis-commit", daemon=True)
            thread.start()
            self._thread = thread  # once it runs: who closes this waits for it
        self._handed.put(batch)
        asyncio.get_running_loop().call_later(COMMIT_WAIT_S, _too_late, batch)

    def _work(self) -> None:
        handed = self._handed
        while (batch := handed.get()) is not None:
            last = False
            while not handed.empty():  # what came while the last commit ran joins this one
                more = handed.get()
                if more is None:
                    last = True
                    break
                batch = [*batch, *more]  # the first list is what its own time-out watches
            for start in range(0, len(batch), MAX_GROUP):
                group = batch[start : start + MAX_GROUP]
                answers = self._commit(group)
                loop = self._loop()
                if loop is not None and not loop.is_closed():
                    loop.call_soon_threadsafe(_settle, group, answers)
            if last:
                return

    def _commit(self, group: list[_Waiter], *, wait_s: float | None = None) -> list[Answer | Exception]:
        """The answers to a group; with `wait_s`, `StoreBusy` where others hold the store for longer."""
        started = time.monotonic()
        try:
            return list(self._ledger.commit([unit for unit, _ in group], wait_s=wait_s))
        except Exception as error:
            if wait_s is not None and isinstance(error, StoreBusy):
                raise
            return [error] * len(group)
        finally:
            self._slow = time.monotonic() - started > SLOW_S


def _is_large(group: list[_Waiter]) -> bool:
    """Whether writing the group takes long, whatever the disk."""
    return sum([len(draft.payload or b"") for unit, _ in group for draft in unit.drafts]) > LARGE_BYTES


def _settle(group: list[_Waiter], answers: list[Answer | Exception]) -> None:
    for (_, waiter), answer in zip(group, answers, strict=True):
        if waiter.done():  # its caller went away or was told that the store is slow
            continue
        if isinstance(answer, Exception):
            waiter.set_exception(answer)
        else:
            waiter.set_result(answer)


def _too_late(group: list[_Waiter]) -> None:
    for _, waiter in group:
        if not waiter.done():
            waiter.set_exception(StoreUnavailable("the log did not take the record in time"))


def _only(work: Callable[[], R]) -> Steps[R]:
    """Steps that record nothing."""
    return work()
    yield Unit()  # makes this a generator


def _recording(unit: Unit) -> Steps[tuple[Recorded, ...]]:
    """Steps that record one unit."""
    return (yield unit)


class _Job(Generic[R]):
    """Steps that a driver runs for somebody who waits elsewhere.

    Whoever waits gives `tell`, hears of the end or of slow work, and sets `is_given_up` when they go away.
    """

    __slots__ = ("context", "failure", "is_given_up", "is_over", "recorded", "slow", "steps", "tell", "value")

    value: R

    def __init__(self, steps: Steps[R], tell: Callable[[], object]):
        self.steps = steps
        self.tell = tell
        self.context = copy_context()
        self.is_given_up = False
        self.is_over = False
        self.recorded: Any = None  # what the steps go on with; they begin with nothing
        self.slow: Slow[Any] | None = None
        self.failure: BaseException | None = None

    def result(self) -> R:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return self.value


class _Driver:
    """A thread that runs the steps of others, and commits together what waits together.

    It is started where it is first needed, anew in a forked child, and by one call into the interpreter: an
    exception beside that call leaves at worst a thread too many, which has nothing to do.
    """

    def __init__(self, ledger: Ledger):
        self._ledger = ledger
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._runs = _thread.allocate_lock()  # taken while the thread runs
        self._process = 0

    @property
    def depth(self) -> int:
        return self._jobs.qsize()

    def put(self, job: _Job[Any]) -> None:
        """Run the steps of `job`, or go on with them; raises `StoreUnavailable` where that cannot be."""
        if self._jobs.qsize() >= MAX_WAITING:
            raise StoreUnavailable("too many calls wait for the log")
        if self._process != os.getpid():
            jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
            runs = _thread.allocate_lock()
            runs.acquire()
            try:
                _thread.start_new_thread(_drive, (jobs, self._ledger, runs))
            except RuntimeError as error:
                raise StoreUnavailable("no thread can be started") from error
            self._jobs, self._runs, self._process = jobs, runs, os.getpid()
        self._jobs.put(job)

    def end(self) -> bool:
        """End the thread after what it was given; whether there is one in this process."""
        if self._process != os.getpid():
            return False
        self._process = 0
        self._jobs.put(None)
        return True

    def close(self) -> None:
        """`end`, and wait for it as long as for a commit."""
        if self.end() and self._runs.acquire(timeout=COMMIT_WAIT_S):
            self._runs.release()


def _drive(jobs: queue.SimpleQueue[_Job[Any] | None], ledger: Ledger, runs: _thread.LockType) -> None:
    try:
        _run_jobs(jobs, ledger)
    finally:
        runs.release()


def _run_jobs(jobs: queue.SimpleQueue[_Job[Any] | None], ledger: Ledger) -> None:
    ready: list[_Job[Any]] = []
    last = False
    while ready or not last:
        if not ready:
            first = jobs.get()
            if first is None:
                return
            ready.append(first)
        while len(ready) < MAX_GROUP and not last and not jobs.empty():
            more = jobs.get()
            if more is None:
                last = True
            else:
                ready.append(more)
        try:
            ready = _recorded(_advanced(ready), ledger)
        except BaseException as failure:  # no memory, perhaps: everybody is told, nobody is left waiting
            for job in ready:
                _end(job, failure)
            ready = []


def _advanced(jobs: list[_Job[Any]]) -> list[tuple[_Job[Any], Unit]]:
    """Run each job up to its next unit; what is recorded is not told to anybody before the next step ran."""
    found: list[tuple[_Job[Any], Unit]] = []
    for job in jobs:
        if job.is_given_up:
            job.steps.close()
            continue
        failure, job.failure = job.failure, None
        try:
            if failure is None:
                unit = job.context.run(job.steps.send, job.recorded)
            else:
                unit = job.context.run(job.steps.throw, failure)
        except StopIteration as stop:
            job.value = stop.value
            job.is_over = True
            job.tell()
        except BaseException as error:
            _end(job, error)
        else:
            if isinstance(unit, Slow):
                job.slow = unit
                job.tell()
            else:
                found.append((job, unit))
    return found


def _recorded(found: list[tuple[_Job[Any], Unit]], ledger: Ledger) -> list[_Job[Any]]:
    """Record in one commit what is still wanted, and give each job what its steps go on with."""
    wanted = [(job, unit) for job, unit in found if not job.is_given_up]
    for job, _ in found:
        if job.is_given_up:
            job.steps.close()
    if not wanted:
        return []
    answers: list[Answer | Exception]
    try:
        answers = list(ledger.lead([unit for _, unit in wanted]))
    except Exception as error:
        answers = [error] * len(wanted)
    for (job, _), answer in zip(wanted, answers, strict=True):
        if isinstance(answer, Exception):
            job.failure = answer
        else:
            job.recorded = answer
    return [job for job, _ in wanted]


def _refusal() -> StoreUnavailable:
    """What whoever asked is told where nothing is left to work with: it is as if there were no log."""
    return StoreUnavailable("no memory, files or threads are left")


def _end(job: _Job[Any], failure: BaseException) -> None:
    job.failure = _refusal() if is_exhausted(failure) else failure
    job.slow = None
    job.steps.close()
    job.is_over = True
    job.tell()


def _sheltered(driver: _Driver, steps: Steps[R]) -> R:
    """Wait in this thread for `steps`, which a driver runs; an exception raised here gives them up."""
    arrived = _thread.allocate_lock()
    arrived.acquire()
    job = _Job(steps, arrived.release)
    try:
        while True:
            driver.put(job)
            arrived.acquire()
            if job.slow is None:
                return job.result()
            slow, job.slow = job.slow, None
            job.recorded = slow.wait()
    finally:
        _give_up(driver, job)


async def _aside(driver: _Driver, steps: Steps[R]) -> R:
    """`_sheltered` for a task of the running loop; raises `StoreUnavailable` after `COMMIT_WAIT_S`."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()
    job = _Job(steps, partial(_tell, loop, arrived))
    try:
        while True:
            driver.put(job)
            timer = loop.call_later(COMMIT_WAIT_S, partial(_arrive, arrived, in_time=False))
            try:
                await arrived
            finally:
                timer.cancel()
            if job.slow is None:
                return job.result()
            slow, job.slow = job.slow, None
            arrived = loop.create_future()
            job.tell = partial(_tell, loop, arrived)
            job.recorded = await slow.arrive()
    finally:
        _give_up(driver, job)


def _give_up(driver: _Driver, job: _Job[Any]) -> None:
    """Nobody waits for `job` any more; steps that did not end are closed by the thread that runs them."""
    job.is_given_up = True
    if not job.is_over:
        with suppress(StoreUnavailable):
            driver.put(job)


def _tell(loop: asyncio.AbstractEventLoop, arrived: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
        loop.call_soon_threadsafe(_arrive, arrived)


def _arrive(arrived: asyncio.Future[None], *, in_time: bool = True) -> None:
    if arrived.done():
        return
    if in_time:
        arrived.set_result(None)
    else:
        arrived.set_exception(StoreUnavailable("the store did not answer in time"))
