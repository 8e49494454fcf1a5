"""A source of pieces that also ticks while it is silent, so that what was held back is released in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def ticking(source: AsyncIterable[T], seconds: float, wanted: Callable[[], bool]) -> AsyncGenerator[T | None]:
    """Every piece of `source`, and `None` after `seconds` of silence while ticks are `wanted`.

    The source runs in one task of its own, at most one piece ahead; what it raises is raised here.
    """
    pieces: asyncio.Queue[T] = asyncio.Queue(1)

    async def pump() -> None:
        async for piece in source:
            await pieces.put(piece)

    pumping = asyncio.ensure_future(pump())
    getting = asyncio.ensure_future(pieces.get())
    try:
        while not (pumping.done() and pieces.empty() and not getting.done()):
            waiting: set[asyncio.Future[Any]] = {getting} if pumping.done() else {getting, pumping}
            done, _ = await asyncio.wait(
                waiting, timeout=seconds if wanted() else None, return_when=asyncio.FIRST_COMPLETED
            )
            if getting.done():
                piece = getting.result()
                getting = asyncio.ensure_future(pieces.get())
                yield piece
            elif not done:
                yield None
        pumping.result()
    finally:
        for task in (pumping, getting):
            task.cancel()
        await asyncio.gather(pumping, getting, return_exceptions=True)
