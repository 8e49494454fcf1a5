"""Runs that a person has to let go on, by their labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aegis.core.outcome import Outcome, Reason
from aegis.runs.guard import GuardContext, RunReport, RunView, Stage
from aegis.runs.guards.options import read_options


class _Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    when: dict[str, tuple[str, ...]]


class AskGuard:
    """Holds a run one of whose labels has one of the given values."""

    name = "ask"
    stages: frozenset[Stage] = frozenset({"ingress", "egress"})

    def __init__(self, when: Mapping[str, tuple[str, ...]]) -> None:
        self._when = when

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> AskGuard:
        """From `{when: {LABEL: [VALUE]}}`; raises `ValueError`."""
        when = read_options(options, _Options).when
        if not when:
            raise ValueError("`when` names no label")
        return cls(when)

    def check(self, view: RunView, _: GuardContext) -> RunReport:
        """`require_approval` where a label has a listed value."""
        held = sorted(label for label, values in self._when.items() if view.labels.get(label) in values)
        if not held:
            return RunReport()
        return RunReport(
            outcome=Outcome.REQUIRE_APPROVAL,
            reason=Reason.APPROVAL_REQUIRED,
            message="a person has to let this run go on",
            rules=tuple(f"ask-{label}" for label in held),
        )
