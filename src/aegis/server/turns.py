"""Whose turn it is on the event loop: principals are served one after the other, whoever asks for how much.

A decision that is light holds the loop for less than a millisecond. `PER_TURN` of them run in one turn of the loop, and
where more wait, each principal has one before any has a second. Bodies that take long to read are taken one at a time
from each principal, and so are only so many requests that wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from aegis.errors import InvalidCall

PER_TURN: Final = 2  # light decisions in one turn of the loop: bounds how long whoever comes next waits for it
WAITING: Final = 512  # requests of one principal that wait for something: half of the connections are others'
AT_ONCE: Final = 4  # large bodies and batches of one principal that are in memory: bounds that memory


class Turns:
    """Gives turns on one event loop, round robin between principals."""

    def __init__(self) -> None:
        self._given = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._scheduled = False
        self._large: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()
        self._waits: Counter[str] = Counter()

    async def take(self, principal: str) -> None:
        """Return when it is this principal's turn; at once, as long as fewer than `PER_TURN` had one in this turn."""
        loop = asyncio.get_running_loop()
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._next)
        if self._given < PER_TURN and not self._waiting:
            self._given += 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(principal, deque()).append(turn)
        await turn

    @asynccontextmanager
    async def large(self, principal: str) -> AsyncIterator[None]:
        """Hold one of the places that a principal has for large bodies; what has none is not read from its socket."""
        places = self._large.setdefault(principal, asyncio.Semaphore(AT_ONCE))
        self._users[principal] += 1
        try:
            async with places:
                yield
        finally:
            self._users[principal] -= 1
            if not self._users[principal]:
                del self._users[principal], self._large[principal]

    @contextmanager
    def waiting(self, principal: str) -> Iterator[None]:
        """Count a request that may be answered much later; raises `InvalidCall` (429) beyond `WAITING`."""
        if self._waits[principal] >= WAITING:
            raise InvalidCall(
                "too many requests of this key wait already",
                code="too_many_waiting",
                hint="close another one first",
                status=429,
            )
        self._waits[principal] += 1
        try:
            yield
        finally:
            self._waits[principal] -= 1
            if not self._waits[principal]:
                del self._waits[principal]

    def _next(self) -> None:
        """Give the turns of the next turn of the loop."""
        self._given = 0
        while self._waiting and self._given < PER_TURN:
            principal, lane = self._waiting.popitem(last=False)
            turn = lane.popleft()
            if lane:
                self._waiting[principal] = lane
            if not turn.done():  # its caller went away
                self._given += 1
                turn.set_result(None)
        self._scheduled = bool(self._given)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._next)
