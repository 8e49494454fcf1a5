"""One execution for one decision: whoever comes again with the same call gets what the first one got."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final

from aegis.adapters._memory import Bounded

MAX_RESULTS: Final = 1_000  # results are kept alive as they are, whatever their size


class Once:
    """Remembers the executions of this process by decision; what failed may be tried again."""

    def __init__(self, max_results: int = MAX_RESULTS) -> None:
        self._lock = threading.Lock()
        self._runs: Bounded[str, Future[Any]] = Bounded(max_results, 0)

    def run(self, key: str, body: Callable[[], Any]) -> Any:
        """The result of `body`, which runs unless it runs or ran under this key; an empty key is never known."""
        future, mine = self._claim(key)
        if not mine:
            return future.result()
        try:
            result = body()
        except BaseException as error:
            self._failed(key, future, error)
            raise
        future.set_result(result)
        return result

    async def arun(self, key: str, body: Callable[[], Awaitable[Any]]) -> Any:
        """The async twin of `run`."""
        future, mine = self._claim(key)
        if not mine:
            # Shielded: whoever stops waiting does not stop the execution.
            return await asyncio.shield(asyncio.wrap_future(future))
        try:
            result = await body()
        except BaseException as error:
            self._failed(key, future, error)
            raise
        future.set_result(result)
        return result

    def _claim(self, key: str) -> tuple[Future[Any], bool]:
        with self._lock:
            known = self._runs.get(key) if key else None
            if known is not None:
                return known, False
            future: Future[Any] = Future()
            # Running: a waiter that gives up cannot cancel it.
            future.set_running_or_notify_cancel()
            if key:
                self._runs.put(key, future)
            return future, True

    def _failed(self, key: str, future: Future[Any], error: BaseException) -> None:
        with self._lock:
            self._runs.drop(key)
        future.set_exception(error)
