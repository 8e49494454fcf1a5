"""Waking those who wait for an approval: at once for what this process records, soon for what another one does.

One task reads new leaves while anybody waits, so that two hundred waiting clients cost one query at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson

from aegis.core.ports import Store
from aegis.errors import StoreError
from aegis.gate.events import Event

POLL_S: Final = 0.02  # how soon an answer that another process took is heard of
PAGE: Final = 1_000  # leaves looked at in one round
_KINDS: Final = frozenset({"approval", "redemption"})


class Watched:
    """One waiter's end."""

    def __init__(self) -> None:
        self._moved = asyncio.Event()

    def wake(self) -> None:
        """Let the waiter look again."""
        self._moved.set()

    async def changed(self, seconds: float) -> None:
        """Return once something happened to the approval, or after `seconds`."""
        try:
            await asyncio.wait_for(self._moved.wait(), seconds)
        except TimeoutError:
            return
        self._moved.clear()


class Waiting:
    """Who waits for which approval, over one store and on one event loop."""

    def __init__(self, store: Store):
        self._store = store
        self._watched: dict[str, set[Watched]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, approval_id: str) -> Iterator[Watched]:
        """Hear of what happens to one approval for as long as the block lasts."""
        self._loop = asyncio.get_running_loop()
        watched = Watched()
        self._watched.setdefault(approval_id, set()).add(watched)
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._follow())
        try:
            yield watched
        finally:
            self._watched[approval_id].discard(watched)
            if not self._watched[approval_id]:
                del self._watched[approval_id]

    def heard(self, event: Event) -> None:
        """Take a recorded event of this process; safe from any thread."""
        approval_id = event.members.get("approval_id")
        if event.kind in _KINDS and approval_id in self._watched and self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake, approval_id)

    def wake_all(self) -> None:
        """Let every waiter look again, as when the gateway goes down."""
        for approval_id in list(self._watched):
            self._wake(approval_id)

    async def close(self) -> None:
        """End the reading task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _wake(self, approval_id: str) -> None:
        for watched in self._watched.get(approval_id, ()):
            watched.wake()

    async def _follow(self) -> None:
        """Read new leaves until nobody waits any more."""
        at: int | None = None
        while self._watched:
            try:
                at, moved = await asyncio.to_thread(self._read, at)
            except StoreError:  # waiters look for themselves now and then; nothing is lost
                moved = []
            for approval_id in moved:
                self._wake(approval_id)
            await asyncio.sleep(POLL_S)

    def _read(self, at: int | None) -> tuple[int, list[str]]:
        with self._store.reader() as reader:
            size = reader.head().size
            if at is None:  # what was recorded while the first waiter looked must not be missed
                at = max(0, size - PAGE)
            entries = [entry for entry in reader.entries(at, min(size, at + PAGE)) if entry.kind in _KINDS]
        bodies: list[dict[str, Any]] = [orjson.loads(entry.body) for entry in entries]
        return min(size, at + PAGE), [body["approval_id"] for body in bodies if "approval_id" in body]
