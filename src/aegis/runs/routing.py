"""Which model answers: allowed by the run's labels, healthy, and first in the route's order."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from aegis.runs.guards.residency import REGIONS
from aegis.runs.plan import Model, Plan

REST_SECONDS: Final = 30.0  # how long a model that failed is passed over while others are well


def compliant(plan: Plan, labels: Mapping[str, str]) -> list[Model]:
    """The models of the route that the labels allow, in its order."""
    regions = labels.get(REGIONS)
    if regions is None:
        return list(plan.models)
    allowed = regions.split()
    return [model for model in plan.models if "*" in allowed or model.settings.region in allowed]


class Health:
    """Which models failed of late, in this process; one that rests is still asked when no other is left."""

    def __init__(self) -> None:
        self._failed: dict[str, float] = {}

    def in_order(self, models: list[Model]) -> list[Model]:
        """Those that are well first; the order is otherwise kept."""
        now = time.monotonic()
        return sorted(models, key=lambda model: now - self._failed.get(model.name, -REST_SECONDS) < REST_SECONDS)

    def failed(self, model: Model) -> None:
        """The model did not answer as it should."""
        self._failed[model.name] = time.monotonic()

    def answered(self, model: Model) -> None:
        """The model is well."""
        self._failed.pop(model.name, None)
