"""Which model answers: allowed by the run's labels, and in the order that the route's router says."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from msgspec import Struct

from aegis.config.models import ModelSettings
from aegis.runs.guards import REGIONS
from aegis.runs.masking import NoOptions, read_options
from aegis.runs.providers import Make, Provider

_log = logging.getLogger("aegis.runs")

GROUP: Final = "aegis.run_routers"
REST_SECONDS: Final = 30.0  # how long a model that failed is passed over while others are well


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """One model that a route may use, with its provider."""

    name: str
    settings: ModelSettings
    provider: Provider


class Candidate(Struct, frozen=True, kw_only=True):
    """A model that the run's labels allow, as a router sees it.

    Prices are in whole currency units for a million tokens; `well` says that it did not fail of late.
    """

    name: str
    region: str
    labels: Mapping[str, Sequence[str]]
    input_price: int
    output_price: int
    well: bool


class Router(Protocol):
    """Puts the candidates, which come in the route's order, in the order in which they are asked.

    Those that it leaves out are not asked. An exception, or a name that is no candidate's, refuses the run.
    """

    @property
    def name(self) -> str: ...

    def order(self, candidates: Sequence[Candidate], labels: Mapping[str, str]) -> Sequence[str]: ...


class Listed:
    """The route's own order; models that failed of late come last."""

    name = "listed"

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> Listed:
        """Takes no options."""
        read_options(options, NoOptions)
        return cls()

    def order(self, candidates: Sequence[Candidate], _: Mapping[str, str]) -> Sequence[str]:
        return [one.name for one in sorted(candidates, key=lambda one: not one.well)]


BUILT_IN: Final[dict[str, Make]] = {"listed": Listed.configured}


class Health:
    """Which models failed of late, in this process."""

    def __init__(self) -> None:
        self._failed: dict[str, float] = {}

    def well(self, name: str) -> bool:
        """Whether the model did not fail within the last `REST_SECONDS`."""
        return time.monotonic() - self._failed.get(name, -REST_SECONDS) >= REST_SECONDS

    def failed(self, name: str) -> None:
        """The model did not answer as it should."""
        self._failed[name] = time.monotonic()

    def answered(self, name: str) -> None:
        """The model is well."""
        self._failed.pop(name, None)


def choose(models: Sequence[Model], router: Router, labels: Mapping[str, str], health: Health) -> list[Model]:
    """The models to ask, first to last; empty where none may be asked, which refuses the run."""
    allowed = {model.name: model for model in models if _allows(model.settings, labels)}
    candidates = [_candidate(model, health.well(model.name)) for model in allowed.values()]
    if not candidates:
        return []
    try:
        order = list(router.order(candidates, dict(labels)))
    except Exception as error:
        _log.error("a router failed", extra={"router": router.name, "error": type(error).__name__})
        return []
    if len(set(order)) != len(order) or not allowed.keys() >= set(order):
        _log.error("a router named a model that is none of the candidates", extra={"router": router.name})
        return []
    return [allowed[name] for name in order]


def _allows(model: ModelSettings, labels: Mapping[str, str]) -> bool:
    """Whether a run with these labels may be shown to the model; a label that the run lacks is not one it has."""
    regions = labels.get(REGIONS)
    if regions is not None and not {"*", model.region} & set(regions.split()):
        return False
    return all(labels.get(label) in values for label, values in model.labels.items())


def _candidate(model: Model, well: bool) -> Candidate:
    settings = model.settings
    return Candidate(
        name=model.name,
        region=settings.region,
        labels=settings.labels,
        input_price=settings.price.input,
        output_price=settings.price.output,
        well=well,
    )
