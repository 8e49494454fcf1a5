"""Driving steps: who waits for a commit, a thread or an event loop.

A thread commits by itself, together with whoever waits beside it. An event loop collects what its
handlers bring in one tick, so that a tick costs one durable commit. It commits by itself as long as
commits are quick; after a slow one, or where another writer holds the store, it hands them to a writer
thread and goes on serving, until they are quick again.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import weakref
from collections.abc import Generator
from typing import Any, Final, TypeVar

from aegis.audit.writer import MAX_GROUP, MAX_WAITING, Answer, Ledger, Unit
from aegis.core.receipt import Recorded
from aegis.errors import StoreBusy, StoreUnavailable
from aegis.gate.slow import Slow

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
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopWriter] = weakref.WeakKeyDictionary()

    def run(self, steps: Steps[R]) -> R:
        """Drive `steps` in this thread."""
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
        finally:
            steps.close()  # a caller that is gone leaves nothing half done

    async def arun(self, steps: Steps[R]) -> R:
        """Drive `steps` on the running loop."""
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
        finally:
            steps.close()

    async def append(self, unit: Unit) -> tuple[Recorded, ...]:
        """Record one unit from an event loop."""
        return await self._writer().submit(unit)

    def append_sync(self, unit: Unit) -> tuple[Recorded, ...]:
        """Record one unit from a thread."""
        return self._ledger.append(unit)

    @property
    def depth(self) -> int:
        """How many units wait for a commit."""
        return self._ledger.depth + sum(writer.depth for writer in self._loops.values())

    def close(self) -> None:
        """End the writer threads; what was handed in before is still recorded."""
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
    return sum(len(draft.payload or b"") for unit, _ in group for draft in unit.drafts) > LARGE_BYTES


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
