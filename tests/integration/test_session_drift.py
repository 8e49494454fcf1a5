"""How far a session is from its user's words: noted, told by an alarm once, held or deferred, and shown to policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from aegis.bootstrap import Deployment
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Search
from support.deployments import deployment

TASK = "Please read my mails of today and summarise them"
Opened = Callable[..., Deployment]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    places: list[Deployment] = []

    def open_with(settings: str, more: str = "") -> Deployment:
        text = f"version: 1\nlimits: {{rate: unlimited}}\nguards: {{drift: {settings}}}\n{more}"
        places.append(deployment(tmp_path / f"home{len(places)}", text))
        return places[-1]

    yield open_with
    for place in places:
        place.close()


def call(place: Deployment, tool: str, session: str = "s", **arguments: Any) -> Decision:
    return place.gate.decide(ToolCall(tool=tool, arguments=arguments, session=session))


def alarms(place: Deployment) -> list[dict[str, Any]]:
    with place.store.reader() as reader:
        return [orjson.loads(entry.body) for entry in reader.search(Search(kind="alarm"))]


def astray(place: Deployment, session: str = "s") -> list[Decision]:
    """Four deeds that nobody asked for, on four kinds of things."""
    return [
        call(place, tool, session, name="x")
        for tool in ("make_payment", "invite_person", "post_article", "share_folder")
    ]


def test_what_the_user_asked_for_is_near_and_what_he_did_not_is_far(opened: Opened) -> None:
    place = opened("{mode: enforce, alert: 60, hold: 80}")
    place.gate.open_session("s", task=TASK)
    assert call(place, "read_mails", day="today").allowed
    assert not alarms(place)
    decisions = astray(place)
    assert decisions[0].allowed
    assert [one.rule for one in decisions[0].findings if one.guard == "drift"] == ["drift-alert"]
    assert (decisions[-1].outcome, decisions[-1].reason) == (Outcome.REQUIRE_APPROVAL, Reason.UNLICENSED)
    assert [one.rule for one in decisions[-1].findings if one.guard == "drift"] == ["drift-hold"]


def test_a_session_alarms_once_for_each_threshold_and_keeps_the_furthest(opened: Opened) -> None:
    place = opened("{mode: observe, alert: 60, hold: 80}")
    place.gate.open_session("s", task=TASK)
    assert all(one.allowed for one in (*astray(place), *astray(place)))
    assert [(one["action"], one["session"]) for one in alarms(place)] == [("drift", "s")] * 2
    assert call(place, "read_mails", day="today").allowed


def test_without_words_there_is_no_drift_and_switched_off_nobody_asks(opened: Opened) -> None:
    place = opened("{mode: enforce, alert: 1, hold: 1}")
    assert all(one.allowed for one in astray(place, "wordless"))
    place = opened("{mode: off, alert: 1, hold: 1}")
    place.gate.open_session("s", task=TASK)
    assert all(one.allowed for one in astray(place))
    assert alarms(place) == []


def test_the_same_run_drifts_the_same_on_every_gateway(opened: Opened) -> None:
    found = []
    for _ in range(2):
        place = opened("{mode: enforce, alert: 60, hold: 80}")
        place.gate.open_session("s", task=TASK)
        found.append([[(one.rule, one.message) for one in told.findings] for told in astray(place)])
    assert found[0] == found[1]


def test_where_missing_evidence_is_deferred_a_call_too_far_waits_for_the_next_turn(opened: Opened) -> None:
    place = opened("{mode: enforce, alert: 60, hold: 80}", "insufficient_evidence: defer\n")
    place.gate.open_session("s", task=TASK)
    held = astray(place)[-1]
    assert (held.outcome, held.reason) == (Outcome.REQUIRE_APPROVAL, Reason.DEFERRED)


def test_policies_read_the_furthest_of_earlier_calls(opened: Opened) -> None:
    rule = "forbid(principal, action, resource) when {context.session.drift >= 60};"
    cedar = (
        f'policies: [{{name: base, cedar: "permit(principal, action, resource);"}}, {{name: far, cedar: "{rule}"}}]\n'
    )
    place = opened("{mode: observe, alert: 60, hold: 80}", cedar)
    place.gate.open_session("s", task=TASK)
    assert call(place, "read_mails", day="today").allowed
    assert astray(place)[0].allowed
    assert call(place, "read_mails", day="today").reason is Reason.POLICY_DENIED
