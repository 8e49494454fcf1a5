"""The ASGI application of a gateway: the decision path in front, then middleware, then routes."""

from __future__ import annotations

import asyncio
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from aegis.approvals.expiry import expire
from aegis.approvals.waiting import Waiting
from aegis.bootstrap import Deployment
from aegis.cockpit.page import Cockpit
from aegis.cockpit.surface import PAGES, Browsers, build_cockpit
from aegis.config.reload import Reloads
from aegis.context.ending import end_idle
from aegis.detect.analyse import preload
from aegis.errors import AegisError
from aegis.keys.api import ApiKeys
from aegis.proxies.hooks.routes import HookDoor
from aegis.proxies.mcp.routes import McpProxies
from aegis.proxies.models.listing import model_routes
from aegis.proxies.models.routes import ModelProxies
from aegis.runs.worker import RunWorker
from aegis.server.deciders import Deciders, Forward, FrontLine
from aegis.server.decisions import PATH, DecisionEndpoint
from aegis.server.events import shape
from aegis.server.feed import Feed
from aegis.server.routing import MIDDLEWARE, Api, not_found, routes
from aegis.server.services import Readiness, Services
from aegis.server.table import ENDPOINTS
from aegis.server.telemetry import CallersTrace, Metrics, configured, traced

if TYPE_CHECKING:
    from collections.abc import Coroutine

THREADS: Final = 32  # looks at the store at a time: a server elsewhere that is slow must not use all of them up

DECIDED: Final = frozenset((PATH, f"{PATH}:batch", "/v1/results"))  # what a process beside the front answers itself
AnyApp = TypeVar("AnyApp", bound="App")
_log = logging.getLogger("aegis.server")


class App:
    """One gateway as an ASGI application; its lifespan owns the tasks that run beside requests."""

    def __init__(
        self,
        services: Services,
        cockpit: Cockpit,
        models: ModelProxies,
        mcp: McpProxies,
        hooks: HookDoor,
        decisions: ASGIApp,
        rest: ASGIApp,
    ):
        self.services = services
        self.cockpit = cockpit
        self.reloads = Reloads(services.policy)
        self._decisions = decisions
        self._rest = rest
        self.models = models
        self.mcp = mcp
        self.hooks = hooks
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
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="aegis-look"))
        self.services.gate.expect_no_interruptions()  # the server's handlers set flags, and raise nothing
        while (await receive())["type"] != "lifespan.shutdown":
            await self._begin()
            await send({"type": "lifespan.startup.complete"})
        self.services.draining.set()
        self.reloads.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.models.aclose()
        await self.mcp.aclose()
        await self.hooks.aclose()
        await self.services.waiting.close()
        await self.services.runs.close()
        await self.services.feed.close()
        await self.cockpit.close()
        await asyncio.to_thread(self.services.workers.close)
        await send({"type": "lifespan.shutdown.complete"})

    async def _begin(self) -> None:
        """Start what runs beside requests."""
        self._start(expire(self.services))
        self._start(end_idle(self.services.gate.parts, self.services.gate))
        self._start(self.services.runs.work())
        self._start(self.cockpit.rollup.follow())
        self._start(self.cockpit.alerting.watch())
        self.reloads.start()
        self.services.deliveries.start()
        await asyncio.to_thread(self.services.gate.begin)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_report)
        self._tasks.append(task)


class DecidingApp(App):
    """A process that decides beside the front: calls and results are judged here, all else is the front's."""

    def decide_for(self, line: FrontLine, first: tuple[socket.socket, int], front: Path) -> None:
        """Decide as long as there is a front, which says what is in force, and have it answer what is not decided."""
        self._line = line
        self._first = first
        self._forward = Forward(front)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._lifespan(receive, send)
        elif scope["method"] != "POST" or scope["path"] not in DECIDED:
            await self._forward(scope, receive, send)
        else:
            if not self._line.attached.is_set() and not self.services.draining.is_set():
                await self._line.attached.wait()  # what is in force may have changed meanwhile
            await super().__call__(scope, receive, send)

    async def _begin(self) -> None:
        self._start(self._line.follow(self._first, self._take))

    def _take(self, what: str, value: Any) -> Any:
        if what == "count":
            return self.services.metrics.counted()
        try:
            self.services.policy.adopt(value["text"], [Path(path) for path in value["protected"]])
        except AegisError:
            _log.exception("the configuration of the front was not taken")
            return False
        return True


def create_app(deployment: Deployment, *, is_front: bool = False) -> App:
    """Return the gateway of `deployment`; `is_front` says that others decide beside it."""
    return _app(deployment, App, is_front=is_front)


def create_decider(deployment: Deployment, line: FrontLine, first: tuple[socket.socket, int], front: Path) -> App:
    """Return a process that decides beside the front at the socket `front`, under what the front says on its `line`."""
    app = _app(deployment, DecidingApp)
    app.decide_for(line, first, front)
    return app


def _app(deployment: Deployment, kind: type[AnyApp], *, is_front: bool = False) -> AnyApp:
    preload()
    gate, metrics = deployment.gate, Metrics()
    gate.parts.listeners.append(metrics.count)
    waiting = Waiting(gate.parts.store)
    gate.parts.listeners.append(waiting.heard)
    spans = configured()
    services = Services(
        gate=gate,
        keys=ApiKeys(deployment.store),
        decide=traced(gate.adecide) if spans else gate.adecide,
        feed=Feed(gate.parts.store, shape),
        metrics=metrics,
        readiness=Readiness(gate.parts.store),
        waiting=waiting,
        deliveries=deployment.deliveries,
        log=deployment.log,
        log_signer=deployment.keyring.current_log_signer,
        runs=RunWorker(deployment),
        deciders=Deciders(deployment.policy, metrics) if is_front else None,
    )
    gate.use(services.workers)
    decisions: ASGIApp = DecisionEndpoint(services)
    cockpit = build_cockpit(deployment, services)
    models = ModelProxies(services)
    mcp = McpProxies(services, deployment.home)
    hooks = HookDoor(deployment, services.decide)
    pages = Browsers(cockpit)
    paths = [*model_routes(models), *mcp.routes(), *routes(ENDPOINTS, Api(services)), *routes(PAGES, pages)]
    rest: ASGIApp = Router(paths, redirect_slashes=False, default=pages.not_found(not_found))
    for middleware in reversed(MIDDLEWARE):
        rest = middleware(rest)
    return kind(services, cockpit, models, mcp, hooks, CallersTrace(decisions) if spans else decisions, rest)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a task of the gateway ended", exc_info=cast("Exception", error))
