"""The runs of this gateway: opened when there are routes, and taken up when people answer or a process died."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from aegis.bootstrap import Deployment
from aegis.core.ports import Entry, Store
from aegis.errors import AegisError, InvalidCall
from aegis.server.feed import Dropped, Feed, Subscription

if TYPE_CHECKING:
    from aegis.config.config import Config
    from aegis.runs.service import Runs

RECOVERY_SECONDS: Final = 15.0  # how often runs are looked for whose process is gone
_log = logging.getLogger("aegis.server")


class RunWorker:
    """Opens `Runs` once there are routes; the libraries behind it are loaded no earlier."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._opened: Runs | None = None
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._answers: Feed[str] = Feed(deployment.store, answered)
        deployment.policy.also(check_routes)

    @property
    def wanted(self) -> bool:
        """Whether any route is configured."""
        return bool(self._deployment.policy.config.settings.runs.routes)

    async def runs(self) -> Runs:
        """Return the runs; raises `InvalidCall` (404) where no route is configured."""
        if not self.wanted:
            raise InvalidCall(
                "no route is configured", code="not_found", hint="routes stand in `runs.routes`", status=404
            )
        async with self._opening:
            if self._opened is None:
                from aegis.runs.service import open_runs

                self._opened = await self._stack.enter_async_context(open_runs(self._deployment))
        return self._opened

    async def work(self) -> None:
        """Take up what an earlier process left, then every paused run whose held call somebody answered."""
        subscription: Subscription[str] | None = None
        while True:
            if not self.wanted:
                await asyncio.sleep(RECOVERY_SECONDS)
                continue
            if subscription is None:
                # What was answered while nobody listened is found by asking every paused run once.
                subscription = await self._answers.subscribe()
                await self._quietly(self._recover(paused=True))
            try:
                names = await subscription.get(RECOVERY_SECONDS)
            except Dropped:
                self._answers.leave(subscription)
                subscription = None
                continue
            for name in names:
                await self._quietly(self._answered(name))
            if not names:
                await self._quietly(self._recover(paused=False))

    async def close(self) -> None:
        """End the tool servers and close the checkpoints."""
        await self._answers.close()
        await self._stack.aclose()

    async def _recover(self, *, paused: bool) -> None:
        await (await self.runs()).recover(paused=paused)

    async def _answered(self, run_id: str) -> None:
        await (await self.runs()).answered(run_id)

    async def _quietly(self, work: Awaitable[None]) -> None:
        try:
            await work
        except AegisError:
            _log.exception("a run could not go on")


def answered(_: Store, entries: Sequence[Entry]) -> list[str]:
    """Return the sessions of the held calls that these entries answer."""
    return [entry.session for entry in entries if entry.kind == "approval" and entry.session]


def check_routes(config: Config) -> None:
    """Check the section `runs`; raises `ConfigError` where it does not hold together."""
    if config.settings.runs.is_used:
        from aegis.runs.plan import compile_plans

        compile_plans(config)
