"""The flow guard: what a session has read of one class goes on to another only where the mission says so."""

from __future__ import annotations

from typing import Final

from aegis.core.finding import Report
from aegis.core.outcome import Reason
from aegis.policy.guards.base import Case
from aegis.policy.mission import attested, refusal

_QUIET: Final = Report(guard="flow")


class FlowGuard:
    """Refuses a call whose class may not receive what the session holds."""

    name = "flow"

    def check(self, case: Case) -> Report:
        """`block` where a rule of any mission of the lineage denies the flow, or none allows it."""
        view = case.mission
        if view is None or not view.seen:
            return _QUIET
        for compiled in view.lineage:
            for sink in compiled.classes_of(case.server, case.tool):
                for source in view.seen:
                    if source != sink and source in dict(compiled.classes) and not compiled.rules.get((source, sink)):
                        report = refusal(
                            self.name,
                            f"flow-{source}-{sink}",
                            Reason.EXFILTRATION,
                            "what the session has read may not go there",
                            category="dataflow",
                        )
                        return attested(report) if view.attests else report
        return _QUIET
