"""Loops as an agent and the person who is asked meet them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aegis.bootstrap import Deployment
from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from support.approvals import resolve
from support.deployments import TOOLS, deployment

READ = ToolCall(tool="read_file", arguments={"path": "notes.txt"}, session="s-1")


def configured(loops: str, rate: str = "unlimited") -> str:
    return f"version: 1\nprofile: standard\nlimits: {{rate: {rate}}}\n{TOOLS}guards: {{loops: {loops}}}\n"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    opened = deployment(tmp_path / "home", configured("{mode: enforce, identical: 3/10m}"))
    yield opened
    opened.close()


def test_the_same_call_again_and_again_is_held_and_a_person_gives_it_as_many_more(place: Deployment) -> None:
    assert [place.gate.decide(READ).outcome for _ in range(3)] == [Outcome.ALLOW] * 3
    held = place.gate.decide(replace(READ, call_id="c4"))
    assert (held.outcome, held.reason) == (Outcome.REQUIRE_APPROVAL, Reason.LOOP)
    assert held.approval is not None
    resolve(place.gate, held.approval.id)
    assert place.gate.decide(replace(READ, call_id="c4")).outcome is Outcome.ALLOW
    more = [place.gate.decide(READ).outcome for _ in range(4)]
    assert more == [*[Outcome.ALLOW] * 3, Outcome.REQUIRE_APPROVAL]


def test_sessions_are_counted_apart_and_a_call_without_one_for_its_agent(place: Deployment) -> None:
    for _ in range(3):
        place.gate.decide(READ)
    assert place.gate.decide(replace(READ, session="s-2")).outcome is Outcome.ALLOW
    bare = replace(READ, session=None)
    keys = [Principal(id=f"key {number % 2}", roles=frozenset({"agent"}), agent="bot") for number in range(4)]
    assert [place.gate.decide(bare, principal=one).outcome for one in keys][-1] is Outcome.REQUIRE_APPROVAL


def test_a_repeat_of_one_call_is_no_loop(place: Deployment) -> None:
    again = [place.gate.decide(replace(READ, call_id="one")).outcome for _ in range(8)]
    assert again == [Outcome.ALLOW] * 8


def test_a_loop_that_is_only_observed_is_recorded_once(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home", configured("{mode: observe, identical: 3/10m}"))
    try:
        decisions = [place.gate.decide(READ) for _ in range(5)]
        assert {one.outcome for one in decisions} == {Outcome.ALLOW}
        assert [any(one.rule == "loop-identical" for one in each.findings) for each in decisions].count(True) == 2
    finally:
        place.close()


def test_where_rates_are_lifted_the_default_is_too(tmp_path: Path) -> None:
    for rate, expected in {"unlimited": Outcome.ALLOW, "100/minute": Outcome.REQUIRE_APPROVAL}.items():
        place = deployment(tmp_path / rate[:3], configured("{mode: limited}", rate))
        try:
            assert [place.gate.decide(READ).outcome for _ in range(21)][-1] is expected
        finally:
            place.close()
