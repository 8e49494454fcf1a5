"""From the section `runs` to plans, one a route: everything that can be wrong is found here, before the first run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aegis.errors import ConfigError, Problem
from aegis.models.values import Endpoint
from aegis.pipeline.config import Config
from aegis.pipeline.settings_proxies import ProviderSettings
from aegis.pipeline.settings_runs import ModelSettings, RouteSettings, ToolServerSettings
from aegis.runs.guard import Factory, RunGuard, Stage
from aegis.runs.guards import known_guards, make_guard


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """One model that a route may use, with its provider."""

    name: str
    settings: ModelSettings
    provider: ProviderSettings

    @property
    def endpoint(self) -> Endpoint:
        """Where it is asked."""
        provider = self.provider
        return Endpoint(api=provider.dialect, url=provider.url, name=self.settings.model, key=provider.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """One route, compiled."""

    name: str
    settings: RouteSettings
    models: tuple[Model, ...]
    servers: Mapping[str, ToolServerSettings]
    guards: Mapping[Stage, tuple[RunGuard, ...]]


def compile_plans(config: Config) -> Mapping[str, Plan]:
    """The plans of every route. Raises `ConfigError` with every problem found: names without a thing behind them,
    guards at a stage that they do not serve, options that a guard does not take."""
    problems: list[Problem] = []
    runs, providers = config.settings.runs, config.settings.proxies.providers
    for name, model in runs.models.items():
        if model.provider not in providers:
            problems.append(
                config.problem(
                    ("runs", "models", name, "provider"),
                    f"there is no provider `{model.provider}`",
                    "providers stand in `proxies.providers`",
                )
            )
    known = known_guards() if runs.routes else {}
    for name in runs.options:
        if runs.routes and name not in known:
            problems.append(config.problem(("runs", "options", name), f"there is no guard `{name}`"))
    if problems:
        raise ConfigError(tuple(problems))
    plans = {name: _plan(config, name, route, known, problems) for name, route in runs.routes.items()}
    if problems:
        raise ConfigError(tuple(problems))
    return plans


def _plan(
    config: Config, name: str, route: RouteSettings, known: Mapping[str, Factory], problems: list[Problem]
) -> Plan:
    runs, providers = config.settings.runs, config.settings.proxies.providers
    place = ("runs", "routes", name)
    for kind, wanted, have in (("model", route.models, runs.models), ("server", route.servers, runs.servers)):
        for index, one in enumerate(wanted):
            if one not in have:
                problems.append(config.problem((*place, f"{kind}s", index), f"there is no {kind} `{one}`"))
    return Plan(
        name=name,
        settings=route,
        models=tuple(
            Model(name=one, settings=runs.models[one], provider=providers[runs.models[one].provider])
            for one in route.models
            if one in runs.models
        ),
        servers={one: runs.servers[one] for one in route.servers if one in runs.servers},
        guards={
            "ingress": _guards(config, (*place, "ingress"), route.ingress, "ingress", known, problems),
            "result": _guards(config, (*place, "result"), route.result, "result", known, problems),
            "egress": _guards(config, (*place, "egress"), route.egress, "egress", known, problems),
        },
    )


def _guards(
    config: Config,
    place: tuple[str | int, ...],
    names: list[str],
    stage: Stage,
    known: Mapping[str, Factory],
    problems: list[Problem],
) -> tuple[RunGuard, ...]:
    guards: list[RunGuard] = []
    for index, name in enumerate(names):
        if name not in known:
            hint = f"there are {', '.join(f'`{one}`' for one in sorted(known))}"
            problems.append(config.problem((*place, index), f"there is no guard `{name}`", hint))
            continue
        try:
            guard = make_guard(name, config.settings.runs.options.get(name, {}), known)
        except ValueError as error:
            problems.append(config.problem((*place, index), f"the guard `{name}`: {error}", "see `runs.options`"))
            continue
        if stage not in guard.stages:
            served = ", ".join(sorted(guard.stages))
            problems.append(config.problem((*place, index), f"the guard `{name}` serves {served}, not {stage}"))
            continue
        guards.append(guard)
    return tuple(guards)
