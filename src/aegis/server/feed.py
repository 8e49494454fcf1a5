"""The log as a live feed: what one subscriber missed comes from the log, what is new comes as it is recorded.

One task reads new leaves while anybody listens, whichever process wrote them. Each subscriber has a
bounded queue; one that does not keep up is dropped and can resume from the last index that it saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from aegis.core.ports import Entry, Store
from aegis.errors import InvalidCall, StoreError

POLL_S: Final = 0.1  # how soon a subscriber hears of a new leaf
PAGE: Final = 256  # leaves read at once: bounds what the reading task holds
QUEUE_PAGES: Final = 64  # pages that a slow subscriber may be behind: bounds what it makes us hold
MAX_SUBSCRIBERS: Final = 256  # each one costs a connection and a queue

T = TypeVar("T")
Shape = Callable[[Store, Sequence[Entry]], list[T]]


class Dropped(Exception):
    """The subscriber was too slow; it can come back with the last index that it saw."""


class Subscription(Generic[T]):
    """One subscriber's end of the feed; `start` is the first index that comes through the queue."""

    def __init__(self, start: int):
        self.start = start
        self._queue: asyncio.Queue[list[T]] = asyncio.Queue(QUEUE_PAGES)
        self._dropped = False

    def put(self, items: list[T]) -> None:
        """Hand over the next items; after a full queue nothing more comes, so that there is never a gap."""
        self._dropped = self._dropped or self._queue.full()
        if not self._dropped:
            self._queue.put_nowait(items)

    def drop(self) -> None:
        """End this subscription once what it holds was read."""
        self._dropped = True

    async def get(self, seconds: float) -> list[T]:
        """Return the next items, or none after `seconds`; raises `Dropped` when some were lost."""
        if self._dropped and self._queue.empty():
            raise Dropped
        try:
            return await asyncio.wait_for(self._queue.get(), seconds)
        except TimeoutError:
            return []


class Feed(Generic[T]):
    """The feed of one store; `shape` turns leaves into what subscribers get, in a worker thread."""

    def __init__(self, store: Store, shape: Shape[T]):
        self._store = store
        self._shape = shape
        self._subscribers: set[Subscription[T]] = set()
        self._task: asyncio.Task[None] | None = None
        self._next = 0

    @property
    def subscribers(self) -> int:
        """How many listen now."""
        return len(self._subscribers)

    async def subscribe(self) -> Subscription[T]:
        """Listen to everything from the subscription's `start` on; raises `InvalidCall` (429) when too many do.

        Whoever subscribes also calls `leave`.
        """
        if len(self._subscribers) >= MAX_SUBSCRIBERS:
            raise InvalidCall(
                "too many listen already", code="too_many_subscribers", hint="close another one first", status=429
            )
        if self._task is None or self._task.done():
            size = await asyncio.to_thread(self._size)
            if self._task is None or self._task.done():  # nobody else began meanwhile
                self._next = size
                self._task = asyncio.get_running_loop().create_task(self._follow())
        subscription: Subscription[T] = Subscription(self._next)
        self._subscribers.add(subscription)
        return subscription

    def leave(self, subscription: Subscription[T]) -> None:
        """Listen no more."""
        self._subscribers.discard(subscription)

    async def past(self, start: int, stop: int) -> AsyncIterator[list[T]]:
        """Return what the log holds with `start <= index < stop`, page by page."""
        for at in range(start, stop, PAGE):
            _, items = await asyncio.to_thread(self._read, at, min(at + PAGE, stop))
            yield items

    async def close(self) -> None:
        """End the reading task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        try:
            await self._read_on()
        finally:  # whatever ended it: nobody waits for what will not come
            for subscriber in tuple(self._subscribers):
                subscriber.drop()

    async def _read_on(self) -> None:
        while True:
            try:
                stop, items = await asyncio.to_thread(self._read, self._next, self._next + PAGE)
            except StoreError:  # the store is gone for now: nothing is lost, the log keeps it
                await asyncio.sleep(POLL_S)
                continue
            more = stop - self._next >= PAGE
            self._next = stop
            if items:
                for subscriber in tuple(self._subscribers):
                    subscriber.put(items)
            if not self._subscribers:
                return
            if not more:
                await asyncio.sleep(POLL_S)

    def _read(self, start: int, stop: int) -> tuple[int, list[T]]:
        with self._store.reader() as reader:
            entries = list(reader.entries(start, stop))
        return start + len(entries), self._shape(self._store, entries)

    def _size(self) -> int:
        with self._store.reader() as reader:
            return reader.head().size


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """One event, ready to be sent."""

    index: int
    text: bytes
