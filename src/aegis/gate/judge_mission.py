"""The mission that a judge's own calls are held to: that of the session whose call it looks at."""

from __future__ import annotations

from msgspec import structs

from aegis.gate.control import ControlState
from aegis.gate.missions import Missions
from aegis.gate.record import Subject
from aegis.guards.mission_view import MissionView
from aegis.pipeline.run import Policy


def worker_view(missions: Missions, worker: Subject, state: ControlState, policy: Policy) -> MissionView | None:
    """The worker's mission as its judges meet it, or `None` where it has none; raises `MissionInvalid`.

    A judge takes nothing from budgets and uses up no proof: those are the worker's.
    """
    attended = missions.attend(worker, state, policy, repeats=True, taken=True)
    return None if attended is None else structs.replace(attended.view, for_judge=True)
