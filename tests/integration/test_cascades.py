"""What something contained reached: found by itself, held before its next call, and released with the cause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.behaviour.cascade_store import read_cascades
from aegis.bootstrap import Deployment, open_deployment
from aegis.core.call import ToolCall
from aegis.core.decision import ParentSession
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from support.deployments import TOOLS, deployment
from support.people import person
from support.served import served
from support.shell import aegis, read_json

BASE = (
    f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}"
    "  write_file: {risk: low, effects: [write]}\n"
    "  tell: {risk: low, effects: [write]}\n"
)
RULE = "containment: [{when: {blocked: 2, within: 1h}, of: session, do: suspend, for: 1h}]\n"
ATTACK = {"path": "../../../../etc/shadow"}


def whose(agent: str) -> Principal:
    return Principal(id=agent, roles=frozenset({"agent"}), agent=agent)


class Fleet:
    """A deployment whose agents read, write and attack, each in a session of its own name."""

    def __init__(self, place: Deployment):
        self.place = place

    def decide(self, session: str, tool: str, **arguments: Any) -> tuple[Outcome, Reason]:
        call = ToolCall(tool=tool, arguments=arguments, session=session)
        found = self.place.gate.decide(call, principal=whose(f"agent-{session}"))
        return found.outcome, found.reason

    def read(self, session: str, path: str) -> Outcome:
        return self.decide(session, "read_file", path=path)[0]

    def write(self, session: str, path: str) -> Outcome:
        return self.decide(session, "write_file", path=path, content="x")[0]

    def attack(self, session: str, times: int = 2) -> None:
        for number in range(times):
            self.decide(session, "read_file", path=f"{ATTACK['path']}{number}")

    def settle(self) -> None:
        """Let what the gateway does beside its calls be done."""
        self.place.gate.cascades.settle()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    place = deployment(tmp_path / "home", BASE + RULE)
    try:
        yield Fleet(place)
    finally:
        place.close()


def test_who_read_before_is_found_and_who_reads_after_is_held_before_its_next_call(fleet: Fleet) -> None:
    assert fleet.write("a", "/srv/plan") is Outcome.ALLOW
    assert fleet.read("b", "/srv/plan") is Outcome.ALLOW
    assert fleet.write("b", "/srv/next") is Outcome.ALLOW
    assert fleet.read("c", "/srv/next") is Outcome.ALLOW
    assert fleet.read("d", "/srv/other") is Outcome.ALLOW
    fleet.attack("a")
    fleet.settle()
    assert fleet.write("b", "/srv/more") is Outcome.REQUIRE_APPROVAL
    assert fleet.write("c", "/srv/more") is Outcome.REQUIRE_APPROVAL
    assert fleet.write("d", "/srv/mine") is Outcome.ALLOW
    assert fleet.read("d", "/srv/next") is Outcome.ALLOW
    assert fleet.write("d", "/srv/mine") is Outcome.REQUIRE_APPROVAL
    assert fleet.write("e", "/srv/its own") is Outcome.ALLOW


def test_messages_opened_sessions_and_calls_without_a_session_are_followed_too(fleet: Fleet) -> None:
    assert fleet.decide("a", "tell", to="agent-b", text="do it")[0] is Outcome.ALLOW
    gate = fleet.place.gate
    gate.open_session("child", task="help", parent=ParentSession(session="a", call_id=None), principal=whose("agent-a"))
    fleet.attack("a")
    fleet.settle()
    gate.open_session("late", task="help", parent=ParentSession(session="a", call_id=None), principal=whose("agent-a"))
    child = ToolCall(tool="write_file", arguments={"path": "/srv/x"}, session="child")
    late = ToolCall(tool="write_file", arguments={"path": "/srv/x"}, session="late")
    assert gate.decide(child, principal=whose("agent-a")).outcome is Outcome.REQUIRE_APPROVAL
    assert gate.decide(late, principal=whose("agent-a")).outcome is Outcome.REQUIRE_APPROVAL
    assert fleet.read("b", "/srv/hello") is Outcome.ALLOW
    assert fleet.write("b", "/srv/y") is Outcome.REQUIRE_APPROVAL
    assert fleet.write("c", "/srv/y") is Outcome.ALLOW


def test_every_gateway_on_the_store_holds_what_was_reached_through_another(tmp_path: Path) -> None:
    home = tmp_path / "home"
    one = Fleet(deployment(home, BASE + RULE))
    two = Fleet(open_deployment(home / "aegis.yaml", home, agent="bot"))
    try:
        one.write("a", "/srv/plan")
        one.attack("a", 1)
        two.attack("a", 1)
        two.settle()
        one.read("b", "/srv/plan")
        assert two.write("b", "/srv/more") is Outcome.REQUIRE_APPROVAL
        assert one.write("b", "/srv/more") is Outcome.REQUIRE_APPROVAL
    finally:
        one.place.close()
        two.place.close()


@pytest.mark.parametrize(
    ("does", "later", "marked"),
    [("off", Reason.NONE, False), ("mark", Reason.NONE, True), ("suspend", Reason.REVOKED, True)],
)
def test_the_policy_says_what_is_done_with_them(tmp_path: Path, does: str, later: Reason, marked: bool) -> None:
    place = deployment(tmp_path / "home", f"{BASE}{RULE}cascade: {{do: {does}}}\n")
    fleet = Fleet(place)
    try:
        fleet.write("a", "/srv/plan")
        fleet.attack("a")
        fleet.settle()
        fleet.read("b", "/srv/plan")
        assert fleet.decide("b", "write_file", path="/srv/more", content="x")[1] is later
        with place.store.reader() as reader:
            view = place.gate.memory.load(reader, '["agent-b","b"]')
        assert (view is not None and view.untrusted) is marked
    finally:
        place.close()


def test_what_was_written_long_before_does_not_count(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home", f"{BASE}{RULE}cascade: {{do: hold, back: 1s}}\n")
    fleet = Fleet(place)
    try:
        fleet.write("a", "/srv/plan")
        fleet.read("b", "/srv/plan")
        fleet.attack("a")
        with place.store.reader() as reader:
            last = reader.head().time
        (one,) = [one for one in place.gate.control.current().contained.values() if not one.behind]
        assert one.since <= last
        fleet.settle()
        held = [one.session for one in place.gate.control.current().contained.values() if one.behind]
        assert held in ([], ["b"])  # a slow machine takes longer than the second
    finally:
        place.close()


def test_a_stopped_agent_and_a_restart_in_between(tmp_path: Path) -> None:
    home = tmp_path / "home"
    text = BASE + "containment: [{when: {blocked: 2, within: 1h}, of: agent, do: suspend, for: 1h}]\n"
    fleet = Fleet(deployment(home, text))
    fleet.place.gate.cascades.close()  # it ends before it could look
    fleet.write("a", "/srv/plan")
    fleet.read("b", "/srv/plan")
    fleet.attack("a")
    fleet.settle()
    with fleet.place.store.reader() as reader:
        assert not read_cascades(reader)  # half of a walk is not written
    fleet.place.close()
    again = Fleet(deployment(home, text))
    try:
        again.read("z", "/srv/else")
        again.settle()
        assert again.write("b", "/srv/more") is Outcome.REQUIRE_APPROVAL
        assert again.write("z", "/srv/more") is Outcome.ALLOW
    finally:
        again.place.close()


def test_it_is_listed_with_the_way_on_record_and_ends_with_its_cause(tmp_path: Path) -> None:
    with served(tmp_path / "home", BASE) as gateway:

        def decide(session: str, tool: str, **arguments: Any) -> str:
            found: str = gateway.decide(tool=tool, arguments=arguments, session=session).json["decision"]
            return found

        decide("first", "write_file", path="/srv/plan.txt", content="x")
        for number in range(5):
            decide("first", "read_file", path=f"{ATTACK['path']}{number}")
        (cause,) = gateway.ask("GET", "/v1/containment", key="auditor").json["items"]
        place = f"/v1/containment/{cause['id']}/downstream"
        gateway.deployment.gate.cascades.settle()
        assert decide("second", "read_file", path="/srv/plan.txt") == "allow"
        assert decide("second", "write_file", path="/srv/more.txt", content="x") == "require_approval"
        found = gateway.ask("GET", place, key="auditor").json
        (one,) = found["items"]
        assert (one["session"], one["do"], found["complete"]) == ("second", "hold", True)
        assert [step["by"] for step in one["way"]] == ["read `/srv/plan.txt`"]
        rows = gateway.ask("GET", "/v1/containment", key="auditor").json["items"]
        assert {row["session"]: row["behind"] for row in rows} == {"first": None, "second": cause["id"]}
        alarms = gateway.ask("GET", "/v1/receipts?kind=alarm", key="auditor").json["items"]
        assert [alarm["action"] for alarm in alarms] == ["cascade", "containment"]
        untrusted = gateway.ask("GET", "/v1/sessions/second", key="auditor").json["untrusted"]
        assert untrusted is True
        dana = person(gateway, "dana", "admin", "auditor")
        dana.sign_in()
        page = dana.get(f"/containment/{cause['id']}").body.decode()
        assert "second" in page and "/srv/plan.txt" in page
        assert "/containment/" in dana.get("/agents/bot").body.decode()
        url = f"http://127.0.0.1:{gateway.port}"
        auditor = {"AEGIS_API_KEY": gateway.credentials.text("auditor")}
        assert "second" in aegis("containment", "downstream", cause["id"], "--url", url, env=auditor).stdout
        assert read_json(aegis("containment", "list", "--url", url, "--json", env=auditor))["items"]
        release = f"/v1/containment/{cause['id']}/release"
        assert gateway.ask("POST", release, {"reason": "a drill"}, key="root").status == 200
        assert decide("second", "write_file", path="/srv/more.txt", content="x") == "allow"
        assert gateway.ask("GET", "/v1/containment", key="auditor").json["items"] == []
