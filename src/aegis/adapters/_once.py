"""One execution for one decision: whoever comes again with the same call gets what the first one got."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, Final

from aegis.adapters._memory import Bounded
from aegis.adapters.context import Holding

MAX_RESULTS: Final = 1_000  # results are kept alive as they are, whatever their size


# The executions in whose bodies this code runs.
_around: ContextVar[frozenset[str]] = ContextVar("aegis_around", default=frozenset())


class WaitsForItself(Exception):
    """An execution was begun again inside its own body, which cannot end before it."""


class _Run:
    """One execution: its result once it is `done`, and those who wait for it until then."""

    __slots__ = ("done", "result", "waiting")

    def __init__(self) -> None:
        self.done = False
        self.result: Any = None
        self.waiting: list[Future[Any]] = []


class Once:
    """Remembers the executions of this process by decision; what failed may be tried again."""

    def __init__(self, max_results: int = MAX_RESULTS) -> None:
        self._lock = threading.Lock()
        self._runs: Bounded[str, _Run] = Bounded(max_results, 0)

    def run(self, key: str, body: Callable[[], Any]) -> Any:
        """The result of `body`, which runs unless it runs or ran under this key; an empty key is never known.

        Raises what `body` raises, and `WaitsForItself`.
        """
        if not key:
            return body()
        run, waiter = self._claim(key)
        if waiter is not None:
            return waiter.result()
        if run.done:
            return run.result
        try:
            with _inside(key):
                result = body()
        except BaseException as error:
            self._failed(key, run, error)
            raise
        self._succeeded(run, result)
        return result

    async def arun(self, key: str, body: Callable[[], Awaitable[Any]]) -> Any:
        """The async twin of `run`."""
        if not key:
            return await body()
        run, waiter = self._claim(key)
        if waiter is not None:
            return await asyncio.wrap_future(waiter)
        if run.done:
            return run.result
        try:
            with _inside(key):
                result = await body()
        except BaseException as error:
            self._failed(key, run, error)
            raise
        self._succeeded(run, result)
        return result

    def knows(self, key: str) -> bool:
        """Whether an execution under this key is running, or has a result."""
        with self._lock:
            return self._runs.get(key) is not None

    def _claim(self, key: str) -> tuple[_Run, Future[Any] | None]:
        """The execution under this key; with something to wait on where it is somebody else's and not done."""
        with self._lock:
            run = self._runs.get(key)
            if run is None:
                run = _Run()
                self._runs.put(key, run)
                return run, None
            if run.done:
                return run, None
            if key in _around.get():
                raise WaitsForItself
            waiter: Future[Any] = Future()
            # Whoever gives up waiting cannot cancel what others are told.
            waiter.set_running_or_notify_cancel()
            run.waiting.append(waiter)
            return run, waiter

    def _succeeded(self, run: _Run, result: Any) -> None:
        with self._lock:
            run.result, run.done = result, True
        for waiter in run.waiting:
            waiter.set_result(result)

    def _failed(self, key: str, run: _Run, error: BaseException) -> None:
        with self._lock:
            self._runs.drop(key)
        for waiter in run.waiting:
            waiter.set_exception(error)


def _inside(key: str) -> Holding[frozenset[str]]:
    return Holding(_around, _around.get() | {key})
