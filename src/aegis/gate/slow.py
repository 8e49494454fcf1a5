"""A step of a decision that takes long: whoever drives the steps waits for it, a thread or an event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from aegis.judges.model import Reviewed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slow(Generic[T]):
    """Work that was started elsewhere; giving up its caller gives up the work."""

    work: Future[T]

    def wait(self) -> tuple[()]:
        """Wait in this thread."""
        try:
            wait([self.work])
        except BaseException:
            self.work.cancel()
            raise
        return ()

    async def arrive(self) -> tuple[()]:
        """Wait on the running loop."""
        try:
            await asyncio.wait([asyncio.wrap_future(self.work)])
        except asyncio.CancelledError:
            self.work.cancel()
            raise
        return ()

    def outcome(self: Slow[Reviewed]) -> Reviewed:
        """What it came to; work that broke is a review that failed."""
        if self.work.cancelled():
            return Reviewed(cause="cancelled")
        if self.work.exception() is not None:
            return Reviewed(cause="failed")
        return self.work.result()
