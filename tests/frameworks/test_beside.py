"""Code of the host that stands between a model's call and its tool: nothing runs beside the decision."""

from __future__ import annotations

import json
from typing import Any

from aegis.cli.demo.provider import Turn
from frameworks.conftest import framework
from frameworks.model import MAIL, READ, Agent, Drive, agent, hooked
from support.worlds import scripted

BOTH = Turn(text="let me", calls=(MAIL, READ))
DONE = Turn(text="done")
SECRET = "what the mail server said"


def told(world: Agent) -> str:
    """All that the provider was sent."""
    return json.dumps([one.body for one in world.asked])


def run(beside: Drive) -> tuple[Agent, str]:
    """The world after a run of both calls, and how it ended."""
    ending = Turn(text="done")
    with agent(framework(), framework().ways[0], BOTH, *[ending] * 8) as world:
        world.results["send_email"] = SECRET
        try:
            return world, beside(world)
        except Exception as error:
            return world, type(error).__name__


def test_what_runs_beside_the_decision_is_an_alarm_and_does_not_reach_the_model(beside: Drive) -> None:
    before, _ = run(beside)
    assert SECRET in told(before), "the host's code does not go round the decision"
    alarms: list[str] = []
    with hooked(framework(), scripted(), alarms=alarms):
        world, _ = run(beside)
    assert SECRET not in told(world)
    assert alarms
    assert set(alarms) == {"send_email"}


def test_code_of_the_host_that_stays_on_the_way_is_not_disturbed(fair: Drive) -> None:
    alarms: list[str] = []
    decider = scripted()
    with hooked(framework(), decider, alarms=alarms), agent(framework(), framework().ways[0], BOTH, DONE) as world:
        assert fair(world) == "done"
    assert alarms == []
    decided: list[tuple[str, Any]] = [(call.tool, call.arguments) for call in decider.decided]
    assert [one for one in world.ran if one not in decided] == []
    assert "read_file" in world.ran_tools()
