"""Which regions a run's models may be in, from its classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from aegis.core.outcome import Outcome, Reason
from aegis.runs.guard import GuardContext, RunReport, RunView, Stage
from aegis.runs.guards.classify import LABEL
from aegis.runs.guards.options import read_options

REGIONS: Final = "regions"


class _Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    regions: dict[str, tuple[str, ...]]


class ResidencyGuard:
    """Reads `labels.classification` and writes `labels.regions`, which routing obeys; `*` is every region."""

    name = "residency"
    stages: frozenset[Stage] = frozenset({"ingress", "result"})

    def __init__(self, regions: Mapping[str, tuple[str, ...]]) -> None:
        self._regions = regions

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> ResidencyGuard:
        """From `{regions: {CLASSIFICATION: [REGION]}}`; raises `ValueError`."""
        return cls(read_options(options, _Options).regions)

    def check(self, view: RunView, _: GuardContext) -> RunReport:
        """`allow` with the regions; a classification for which no rule speaks, or none at all, is blocked."""
        regions = self._regions.get(view.labels.get(LABEL, ""))
        if regions is None:
            return RunReport(
                outcome=Outcome.BLOCK, reason=Reason.POLICY_DENIED, message="no region is allowed for this content"
            )
        return RunReport(labels={REGIONS: " ".join(regions)})
