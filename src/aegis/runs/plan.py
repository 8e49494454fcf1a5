"""From the section `runs` to plans, one a route: everything that can be wrong is found here, before the first run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from aegis.config.config import Config
from aegis.config.document import nearest
from aegis.config.models import RouteSettings
from aegis.errors import ConfigError, Problem
from aegis.runs import guards, providers, routing, tools
from aegis.runs.masking import NoOptions, read_options
from aegis.runs.nodes import BuildGraph, Plan
from aegis.runs.providers import NO_OPTIONS, Make, Provider, RunParts, WiredProvider
from aegis.runs.routing import Model
from aegis.runs.state import STAGES, RunGuard, Stage
from aegis.runs.tools import StdioServer

GRAPHS: Final = "aegis.run_graphs"


def _standard(_: Mapping[str, Any]) -> BuildGraph:
    from aegis.runs.nodes import standard_graph

    return standard_graph


def _given(make: Callable[[], Any]) -> Make:
    """A part whose options stand in a section of its own."""

    def made(options: Mapping[str, Any]) -> Any:
        read_options(options, NoOptions)
        return make()

    return made


def compile_plans(config: Config) -> Mapping[str, Plan]:
    """The plans of every route. Raises `ConfigError` with every problem found: names without a thing behind them,
    guards at a stage that they do not serve, options that a part does not take."""
    if not config.settings.runs.is_used:
        return {}
    return _Compiler(config).plans()


class _Compiler:
    """The parts that there are, by kind, those that were made, and what is wrong."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._runs = config.settings.runs
        self._problems: list[Problem] = []
        named = config.settings.proxies.providers
        self._guards = RunParts(guards.GROUP, guards.BUILT_IN)
        self._routers = RunParts(routing.GROUP, routing.BUILT_IN)
        self._graphs = RunParts(GRAPHS, {"standard": _standard})
        wired = {name: _given(partial(WiredProvider, one)) for name, one in named.items()}
        started = {name: _given(partial(StdioServer, name, one)) for name, one in self._runs.servers.items()}
        self._providers = RunParts(providers.GROUP, wired)
        self._servers = RunParts(tools.GROUP, started)
        self._made: dict[tuple[str, str], Any] = {}  # one of a name for all routes: sessions are shared

    def plans(self) -> Mapping[str, Plan]:
        known = (self._guards, self._routers, self._graphs, self._providers, self._servers)
        for name in self._runs.options:
            place = ("runs", "options", name)
            if not any(name in parts for parts in known):
                self._bad(place, f"there is nothing of the name `{name}`", nearest(name, self._guards))
            elif name in self._guards:  # also where no route asks it yet
                self._part(place, "guard", name, self._guards, "check")
        for name in self._runs.models:
            self._provider(name)
        plans = {name: self._plan(name, route) for name, route in self._runs.routes.items()}
        if self._problems:
            raise ConfigError(tuple(self._problems))
        return {name: plan for name, plan in plans.items() if plan is not None}

    def _plan(self, name: str, route: RouteSettings) -> Plan | None:
        place = ("runs", "routes", name)
        models = [self._model((*place, "models", index), one) for index, one in enumerate(route.models)]
        servers = {
            one: self._part((*place, "servers", index), "server", one, self._servers, "tools", "call", "aclose")
            for index, one in enumerate(route.servers)
        }
        router = self._part((*place, "router"), "router", route.router, self._routers, "order")
        graph = self._part((*place, "graph"), "graph", route.graph, self._graphs, "__call__")
        guarding = {stage: self._stage((*place, stage), getattr(route, stage), stage) for stage in STAGES}
        if self._problems:
            return None
        return Plan(
            name=name,
            settings=route,
            models=tuple(model for model in models if model is not None),
            router=router,
            servers=servers,
            guards=guarding,
            graph=graph,
        )

    def _provider(self, name: str) -> Provider | None:
        settings = self._runs.models[name]
        found: Provider | None = self._part(
            ("runs", "models", name, "provider"), "provider", settings.provider, self._providers, "ask"
        )
        return found

    def _model(self, place: tuple[str | int, ...], name: str) -> Model | None:
        if name not in self._runs.models:
            self._bad(place, f"there is no model `{name}`", nearest(name, self._runs.models))
            return None
        provider = self._made.get(("provider", self._runs.models[name].provider))
        return None if provider is None else Model(name=name, settings=self._runs.models[name], provider=provider)

    def _stage(self, place: tuple[str | int, ...], names: list[str], stage: Stage) -> tuple[RunGuard, ...]:
        made: list[RunGuard] = []
        for index, name in enumerate(names):
            guard = self._part((*place, index), "guard", name, self._guards, "check")
            if guard is None:
                continue
            if getattr(guard, "name", None) != name:
                self._bad((*place, index), f"the guard `{name}` does not call itself by that name")
            elif stage not in guard.stages:
                served = ", ".join(sorted(guard.stages))
                self._bad((*place, index), f"the guard `{name}` serves {served}, not {stage}")
            else:
                made.append(guard)
        return tuple(made)

    def _part(self, place: tuple[str | int, ...], kind: str, name: str, parts: RunParts, *methods: str) -> Any:
        """The part `name`, made once; `None`, and a problem, where there is none or it cannot be made."""
        if name not in parts:
            self._bad(place, f"there is no {kind} `{name}`", nearest(name, parts) if parts else "")
            return None
        if (kind, name) not in self._made:
            try:
                options = self._runs.options.get(name, NO_OPTIONS)
                self._made[kind, name] = parts.make(name, options, *methods)
            except ValueError as error:
                self._made[kind, name] = None  # said once, wherever it is named
                self._bad(place, f"the {kind} `{name}`: {error}", "see `runs.options`")
        return self._made.get((kind, name))

    def _bad(self, place: tuple[str | int, ...], message: str, hint: str = "") -> None:
        self._problems.append(self._config.problem(place, message, hint))
