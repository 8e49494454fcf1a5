"""CrewAI: a result that a crew keeps does not go round the gate, and a refusal is no reason to run a tool again."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from crewai.tools import BaseTool

from aegis.cli.demo.provider import Call, Turn
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from frameworks.conftest import framework
from frameworks.drivers.crewai import areact, caching, crew, llm, react, speaker
from frameworks.model import MAIL, READ, Agent, Way, agent, hooked
from frameworks.spoken import spoken
from support.decider import ScriptedDecider, allowed, blocked, sanitized, withheld
from support.worlds import World, scripted

AGAIN = Call(tool=READ.tool, arguments=READ.arguments, id="call_again_012345678")
DONE = Turn(text="done")


@dataclass
class Then:
    """A rule that allows the first call and decides the next ones otherwise."""

    rule: Callable[[ToolCall], Decision]
    asked: int = 0

    def __call__(self, call: ToolCall) -> Decision:
        self.asked += 1
        return allowed(call) if self.asked == 1 else self.rule(call)


WAYS = {
    "native": Way(name="native", drive=lambda world: caching(world, llm(world))),
    "by words": Way(name="by words", drive=lambda world: caching(world, speaker(world)), wrap=spoken),
}


@pytest.fixture(params=WAYS)
def asking(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


def twice(way: Way, decider: ScriptedDecider) -> Agent:
    """The world after a model asked for the same thing twice, with another call between."""
    turns = (Turn(calls=(READ,)), Turn(calls=(MAIL,)), Turn(calls=(AGAIN,)), DONE)
    with hooked(framework(), decider), agent(framework(), way, *turns) as world:
        assert way.drive(world) == "done"
    return world


def reads(decider: ScriptedDecider) -> list[ToolCall]:
    return [call for call in decider.decided if call.tool == "read_file"]


def test_a_kept_result_is_decided_and_observed_and_runs_nothing(asking: Way) -> None:
    decider = scripted()
    world = twice(asking, decider)
    assert world.ran_tools() == ["read_file", "send_email"]
    assert len(reads(decider)) == 2
    assert [one.result for one in decider.observed] == ["text", "sent", "text"]


def test_a_blocked_call_is_not_given_what_was_kept(asking: Way) -> None:
    decider = scripted(read_file=Then(blocked))
    world = twice(asking, decider)
    assert world.ran_tools() == ["read_file", "send_email"]
    assert len(decider.observed) == 2
    assert "`read_file` was not run" in json.dumps(world.asked[-1].body)


def test_changed_arguments_are_not_given_what_was_kept_for_others(asking: Way) -> None:
    world = twice(asking, scripted(read_file=Then(sanitized(path="safe.txt"))))
    assert [given for tool, given in world.ran if tool == "read_file"] == [{"path": "notes.txt"}, {"path": "safe.txt"}]


@pytest.mark.parametrize("drive", [react, areact], ids=["sync", "async"])
def test_a_withheld_result_does_not_run_the_tool_again(
    drive: Callable[[World], str], caplog: pytest.LogCaptureFixture
) -> None:
    decider = scripted()
    decider.inspect = lambda value: withheld(value)
    way = Way(name="by words", drive=drive, wrap=spoken)
    caplog.set_level(logging.ERROR, logger="aegis")
    with hooked(framework(), decider), agent(framework(), way, Turn(calls=(MAIL,)), DONE) as world:
        assert way.drive(world) == "done"
    assert world.ran == [("send_email", {"to": "a@example.com", "subject": "hello"})]
    assert len(decider.decided) == 1
    assert not [record for record in caplog.records if "without a decision" in record.message]


@pytest.mark.parametrize("drive", [react, areact], ids=["sync", "async"])
def test_a_blocked_call_is_decided_once(drive: Any) -> None:
    decider = scripted(send_email=blocked)
    way = Way(name="by words", drive=drive, wrap=spoken)
    with hooked(framework(), decider), agent(framework(), way, Turn(calls=(MAIL,)), DONE) as world:
        assert way.drive(world) == "done"
    assert world.ran == []
    assert len(decider.decided) == 1


class Sending(BaseTool):  # type: ignore[misc]
    """A tool whose body is its own `run`."""

    name: str = "send_email"
    description: str = "Send a mail."
    note: Any = None

    def _run(self, to: str, subject: str = "hello") -> str:
        raise AssertionError("nobody runs it")

    def run(self, *args: Any, **kwargs: Any) -> str:
        return str(self.note(kwargs))


@pytest.mark.parametrize("rule", [blocked, sanitized(to="safe@example.com", subject="checked")])
def test_a_tool_that_has_a_run_of_its_own_is_decided(rule: Any) -> None:
    ran: list[Any] = []

    def note(given: Any) -> str:
        ran.append(given)
        return "sent"

    with (
        hooked(framework(), scripted(send_email=rule)),
        agent(framework(), WAYS["native"], Turn(calls=(MAIL,)), DONE) as world,
    ):
        assert str(crew(world, [Sending(note=note)]).kickoff()) == "done"
    assert ran == ([] if rule is blocked else [{"to": "safe@example.com", "subject": "checked"}])
