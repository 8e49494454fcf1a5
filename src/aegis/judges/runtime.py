"""Where judges run: one thread with an event loop of its own, so that no caller's loop is ever held by one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from aegis.judges.providers import Providers

T = TypeVar("T")
THREADS: Final = 256  # programs of judges at a time, whatever the configuration allows
CLOSE_S: Final = 5.0  # how long judges that are given up may take to be gone


class JudgeLoop:
    """The loop, made at first use; a forked child makes its own. `begin` runs on it before anything else."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, None]]):
        self._begin = begin
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0
        self._places: dict[int, asyncio.Semaphore] = {}
        self.providers = Providers()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def places(self, count: int) -> asyncio.Semaphore:
        """So many judges run at a time; asked for on the loop alone."""
        return self._places.setdefault(count, asyncio.Semaphore(count))

    def close(self) -> None:
        """Give up what runs, and end the thread once it is gone."""
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None or self._process != os.getpid():
            return
        asyncio.run_coroutine_threadsafe(self._end(loop), loop)
        thread.join(CLOSE_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self._process, self._places, self.providers = os.getpid(), {}, Providers()
                loop = self._loop = asyncio.new_event_loop()
                loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="aegis-judge"))
                self._thread = threading.Thread(target=self._serve, args=(loop,), name="aegis-judges", daemon=True)
                self._thread.start()
                asyncio.run_coroutine_threadsafe(self._begin(), loop)
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    async def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        others = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=CLOSE_S)
        await self.providers.aclose()
        loop.stop()
