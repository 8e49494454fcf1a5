"""The ASGI application of a gateway: the decision path in front, then middleware, then routes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from aegis.bootstrap import Deployment
from aegis.keys.api import ApiKeys
from aegis.server.decisions import PATH, Decisions
from aegis.server.events import shape
from aegis.server.expiry import expire
from aegis.server.feed import Feed
from aegis.server.health import Readiness
from aegis.server.metrics import Metrics
from aegis.server.middleware import MIDDLEWARE
from aegis.server.reload import Reloads
from aegis.server.routing import not_found, routes
from aegis.server.services import Services
from aegis.server.table import ENDPOINTS
from aegis.server.tracing import CallersTrace, configured, traced

if TYPE_CHECKING:
    from collections.abc import Coroutine

_log = logging.getLogger("aegis.server")


class App:
    """One gateway as an ASGI application; its lifespan owns the tasks that run beside requests."""

    def __init__(self, services: Services, decisions: ASGIApp, rest: ASGIApp):
        self.services = services
        self.reloads = Reloads(services.policy)
        self._decisions = decisions
        self._rest = rest
        self._tasks: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["path"] == PATH and scope["method"] == "POST":
                await self._decisions(scope, receive, send)
            else:
                await self._rest(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            self._start(expire(self.services))
            self.reloads.start()
            await send({"type": "lifespan.startup.complete"})
        self.services.draining.set()
        self.reloads.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.services.feed.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_report)
        self._tasks.append(task)


def create_app(deployment: Deployment) -> App:
    """The gateway of `deployment`."""
    gate, metrics = deployment.gate, Metrics()
    gate.parts.listeners.append(metrics.count)
    spans = configured()
    services = Services(
        gate=gate,
        keys=ApiKeys(deployment.store),
        decide=traced(gate.adecide) if spans else gate.adecide,
        feed=Feed(gate.parts.store, shape),
        metrics=metrics,
        readiness=Readiness(gate.parts.store),
        log=deployment.log,
        log_signer=deployment.keyring.log_signer(),
    )
    decisions: ASGIApp = Decisions(services)
    rest: ASGIApp = Router(routes(ENDPOINTS, services), redirect_slashes=False, default=not_found)
    for middleware in reversed(MIDDLEWARE):
        rest = middleware(rest)
    return App(services, CallersTrace(decisions) if spans else decisions, rest)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a task of the gateway ended", exc_info=cast("Exception", error))
