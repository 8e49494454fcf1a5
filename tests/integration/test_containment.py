"""Containment as agents, administrators and auditors meet it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import structs

from aegis.behaviour.features import called_of
from aegis.behaviour.trust import trust_in
from aegis.behaviour.usual import MAX_AGENTS
from aegis.bootstrap import Deployment, open_deployment
from aegis.core.behaviour import BaselineRules
from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from support.approvals import resolve
from support.deployments import TOOLS, deployment
from support.missions import desk
from support.people import person
from support.served import Served, served
from support.shell import aegis, read_json
from support.threads import together

ATTACK: dict[str, Any] = {"path": "../../../../etc/shadow"}
READ = ToolCall(tool="read_file", arguments={"path": "notes.txt"}, session="s-1")
BAD = replace(READ, arguments=ATTACK)
LEARNED = called_of(time=0, server=None, tool="read_file", arguments={"path": "/srv/x"}, size=9, effects=["read"])
BASE = f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}"


def contained(text: str) -> str:
    return f"{BASE}containment:\n{text}"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home", BASE) as running:
        yield running


def attack(gateway: Served, times: int, session: str = "s-1") -> list[str]:
    return [gateway.decide(arguments=ATTACK, session=session).json["reason"] for _ in range(times)]


def test_five_blocked_attacks_suspend_the_session_and_alert_and_a_person_releases_it(gateway: Served) -> None:
    assert gateway.decide(session="s-1").json["decision"] == "allow"
    assert attack(gateway, 5) == ["attack_detected"] * 5
    refused = gateway.decide(session="s-1").json
    assert (refused["decision"], refused["reason"]) == ("block", "revoked")
    assert gateway.decide(session="s-2").json["decision"] == "allow"
    (one,) = gateway.ask("GET", "/v1/containment", key="auditor").json["items"]
    assert (one["of"], one["session"], one["do"], one["by"]) == ("session", "s-1", "suspend", "gate")
    assert one["cause"] == "5 calls blocked (attack_detected, high) within 10 minutes"
    suspended = gateway.ask("GET", "/v1/receipts?kind=revocation", key="auditor").json["items"][0]
    assert (suspended["action"], suspended["session"], suspended["parent"]) == ("suspend", "s-1", one["receipt"])
    alarm = gateway.ask("GET", "/v1/receipts?kind=alarm", key="auditor").json["items"][0]
    assert (alarm["action"], alarm["agent"]) == ("containment", "bot")
    assert gateway.ask("POST", f"/v1/containment/{one['id']}/release", {"reason": "drill"}, key="root").status == 200
    assert gateway.decide(session="s-1").json["decision"] == "allow"
    assert gateway.ask("POST", f"/v1/containment/{one['id']}/release", key="root").status == 404
    released = gateway.ask("GET", "/v1/receipts?kind=revocation", key="auditor").json["items"][0]
    assert (released["action"], released["principal"]) == ("release", "root")


def test_only_administrators_release_and_stop_everything(gateway: Served) -> None:
    for path in ("/v1/containment/agent-x/release", "/v1/kill", "/v1/kill/release"):
        assert gateway.ask("POST", path, {"reason": ""}, key="auditor").status == 403
        assert gateway.ask("POST", path, {"reason": ""}).status == 403
        assert gateway.ask("POST", path, {"why": ""}, key="root").status == 422
    assert gateway.ask("GET", "/v1/containment").status == 403


def test_the_switch_stops_calls_sessions_and_challenges_of_every_agent_and_is_released(gateway: Served) -> None:
    assert gateway.decide(call_id="before").json["decision"] == "allow"
    stopped = gateway.ask("POST", "/v1/kill", {"reason": "incident 12"}, key="root").json
    assert stopped["killed"]
    for key in ("bot", "other"):
        assert gateway.decide(key=key).json["reason"] == "revoked"
    assert gateway.decide(call_id="before").json["reason"] == "revoked"
    assert gateway.ask("POST", "/v1/sessions", {"session": "new", "task": "x"}, key="bot").status == 403
    assert gateway.ask("POST", "/v1/sessions:challenge", key="bot").status == 403
    (one,) = gateway.ask("GET", "/v1/containment", key="root").json["items"]
    assert (one["id"], one["cause"], one["by"]) == ("everything", "incident 12", "root")
    assert gateway.ask("POST", "/v1/kill/release", {"reason": "over"}, key="root").json["killed"] is False
    assert gateway.decide().json["decision"] == "allow"
    assert gateway.ask("POST", "/v1/kill/release", key="root").status == 404
    actions = gateway.ask("GET", "/v1/receipts?kind=revocation", key="auditor").json["items"]
    assert [one["action"] for one in actions] == ["release", "kill"]


def test_what_conditions_would_have_done_is_told_and_nothing_changes(gateway: Served) -> None:
    attack(gateway, 3, session="s-9")
    gateway.decide(session="s-9")
    text = contained("  - {when: {blocked: 3, within: 1h}, do: suspend, for: 1h}\n")
    found = gateway.ask("POST", "/v1/containment:replay", text.encode(), key="root").json
    (one,) = found["items"]
    assert (one["of"], one["agent"], one["do"], one["calls"], one["had_run"]) == ("agent", "bot", "suspend", 1, 1)
    assert found["complete"]
    assert gateway.ask("POST", "/v1/containment:replay", key="root").json["items"] == [], "by the conditions in force"
    near = gateway.ask("GET", "/v1/agents/bot/behaviour", key="auditor").json["containment"][0]
    assert (near["of"], near["subject"], near["counted"], near["needed"]) == (
        "session", "bot/s-9", {"blocked": 3}, {"blocked": 5}
    )  # fmt: skip
    assert gateway.ask("GET", "/v1/containment", key="root").json["items"] == []
    assert gateway.decide(session="s-9").json["decision"] == "allow"


def test_the_page_shows_what_is_contained_and_releases_it(gateway: Served) -> None:
    attack(gateway, 5)
    dana = person(gateway, "dana", "auditor", "admin")
    dana.sign_in()
    page = dana.get("/containment").body.decode()
    assert "5 calls blocked (attack_detected, high) within 10 minutes" in page
    (one,) = gateway.ask("GET", "/v1/containment", key="root").json["items"]
    dana.post(f"/containment/{one['id']}/release", {"reason": "looked at it"})
    assert gateway.decide(session="s-1").json["decision"] == "allow"
    dana.post("/kill", {"to": "kill", "reason": "drill"})
    assert gateway.decide().json["reason"] == "revoked"
    assert "Every agent is stopped" in dana.get("/containment").body.decode()
    dana.post("/kill", {"to": "release", "reason": "over"})
    assert gateway.decide().json["decision"] == "allow"


def opened(home: Path, text: str) -> Deployment:
    return deployment(home, text)


def test_several_gateways_on_one_store_count_as_one_and_contain_at_the_very_next_decision(tmp_path: Path) -> None:
    text = contained("  - {when: {blocked: 4, within: 1h}, do: suspend, for: 1h}\n")
    one = opened(tmp_path / "home", text)
    two = open_deployment(tmp_path / "home" / "aegis.yaml", tmp_path / "home", agent="bot")
    try:
        for place in (one, two, one):
            assert place.gate.decide(BAD).reason is Reason.ATTACK_DETECTED
            assert place.gate.decide(READ).outcome is Outcome.ALLOW
        assert two.gate.decide(BAD).reason is Reason.ATTACK_DETECTED
        assert one.gate.decide(READ).reason is Reason.REVOKED
        assert two.gate.decide(READ).reason is Reason.REVOKED
    finally:
        one.close()
        two.close()


def test_many_threads_contain_at_exactly_the_configured_count(tmp_path: Path) -> None:
    place = opened(tmp_path / "home", contained("  - {when: {blocked: 10, within: 1h}, do: suspend, for: 1h}\n"))
    try:
        found: list[Reason] = []

        def work() -> None:
            found.extend(place.gate.decide(BAD).reason for _ in range(8))

        together(4, work)
        assert found.count(Reason.ATTACK_DETECTED) == 10
        assert found.count(Reason.REVOKED) == 22
    finally:
        place.close()


def test_a_held_agent_reads_and_asks_before_it_changes_anything(tmp_path: Path) -> None:
    place = opened(tmp_path / "home", contained("  - {when: {blocked: 1, within: 1h}, do: hold, for: 1h}\n"))
    try:
        place.gate.decide(BAD)
        assert place.gate.decide(READ).outcome is Outcome.ALLOW
        held = place.gate.decide(ToolCall(tool="write_note", arguments={"text": "hello"}))
        assert (held.outcome, held.reason) == (Outcome.REQUIRE_APPROVAL, Reason.APPROVAL_REQUIRED)
    finally:
        place.close()


def test_a_revoked_agent_is_restored_like_one_that_a_person_stopped(tmp_path: Path) -> None:
    home = tmp_path / "home"
    place = opened(home, contained("  - {when: {blocked: 1, within: 1h}, do: revoke}\n"))
    try:
        place.gate.decide(BAD)
        assert place.gate.decide(READ).reason is Reason.REVOKED
        (row,) = read_json(aegis("agents", "list", "--home", home, "--json"))["items"]
        assert (row["state"], row["by"], row["reason"]) == (
            "revoked",
            "gate",
            "containment: 1 call blocked within 1 hour",
        )
        (one,) = read_json(aegis("containment", "list", "--home", home, "--json"))["items"]
        assert (one["agent"], one["do"], one["cause"]) == ("bot", "revoke", "1 call blocked within 1 hour")
        assert aegis("containment", "downstream", one["id"], "--home", home).returncode == 0
        assert aegis("containment", "release", one["id"], "--home", home).returncode == 0
        assert place.gate.decide(READ).outcome is Outcome.ALLOW
        place.gate.decide(BAD)
        assert aegis("agents", "restore", "bot", "--home", home).returncode == 0
        assert place.gate.decide(READ).outcome is Outcome.ALLOW
        told = read_json(aegis("containment", "test", "--home", home, "--json"))
        assert [fired["do"] for fired in told["items"]] == ["revoke"]
    finally:
        place.close()


def test_a_suspended_tool_is_refused_to_everybody_and_a_suspension_ends_by_itself(tmp_path: Path) -> None:
    place = opened(
        tmp_path / "home", contained("  - {when: {blocked: 1, within: 1h}, of: tool, do: suspend, for: 1h}\n")
    )
    try:
        place.gate.decide(BAD)
        assert place.gate.decide(READ).reason is Reason.REVOKED
        assert place.gate.decide(replace(READ, tool="write_note", arguments={"text": "x"})).outcome is Outcome.ALLOW
        state = place.gate.control.current()
        ((key, one),) = state.contained.items()
        later = structs.replace(state, clock=lambda: one.until)
        assert state.refuses(*key)
        assert not later.refuses(*key)
    finally:
        place.close()


@pytest.mark.parametrize("measure", ["denied", "undecided"])
def test_a_mission_is_contained_for_what_is_on_record_beside_its_calls(tmp_path: Path, measure: str) -> None:
    """A person's no and an alarm name no mission: it is that of their session."""
    place = desk(tmp_path / "home", f"containment: [{{when: {{{measure}: 1, within: 1h}}, of: mission, do: suspend}}]")
    try:
        place.open(place.delegate(place.issue(delegation={"depth": 1, "subjects": ["bot"]})))
        assert place.call("read_file", path="/ws/a").outcome is Outcome.ALLOW
        if measure == "denied":
            held = place.call("hold_me", path="/ws/a")
            assert held.approval is not None
            resolve(place.gate, held.approval.id, "deny")
        else:
            place.gate.alarm("read_file", "s-1")
        assert place.call("read_file", path="/ws/a").reason is Reason.REVOKED
    finally:
        place.home.close()


def test_tallies_do_not_grow_with_calls_and_allowed_calls_write_none(tmp_path: Path) -> None:
    place = opened(tmp_path / "home", contained("  - {when: {blocked: 3, within: 1h}, of: session, do: alert}\n"))
    try:
        for _ in range(5):
            place.gate.decide(READ)
        with place.store.reader() as reader:
            assert reader.documents("containment_tallies") == []
        for _ in range(12):
            place.gate.decide(BAD)
        with place.store.reader() as reader:
            (tally,) = reader.documents("containment_tallies")
            alarms = [one for one in reader.entries(0, reader.head().size) if one.kind == "alarm"]
        assert len(tally.body) < 300
        assert len(alarms) == 4
        assert orjson.loads(alarms[0].body)["guards"][0]["rules"] == ["blocked-3-3600s"]
    finally:
        place.close()


def test_ten_thousand_new_names_make_no_more_than_the_conditions_need(tmp_path: Path) -> None:
    """Made-up agents and sessions by the hundred: what is kept of them is bounded, and what was contained stays so."""
    place = opened(
        tmp_path / "home",
        contained("  - {when: {blocked: 1, within: 1s}, of: session, do: suspend, for: 1h}\n"),
    )
    try:
        usual = place.gate.usual
        for number in range(MAX_AGENTS + 50):
            usual.learn(f"made-up {number} of them", "c", LEARNED, BaselineRules(mode="observe"))
        assert len(usual) == MAX_AGENTS
        place.gate.decide(BAD)
        for number in range(40):
            place.gate.decide(replace(READ, session=f"other {number}"))
        assert place.gate.decide(READ).reason is Reason.REVOKED
    finally:
        place.close()


def test_another_name_is_another_agent_but_of_the_same_program_and_its_look_alike_is_the_same(tmp_path: Path) -> None:
    place = opened(tmp_path / "home", contained("  - {when: {blocked: 1, within: 1h}, do: suspend, for: 1h}\n"))

    def decide(agent: str, call: ToolCall = READ) -> Reason:
        principal = Principal(id=f"key of {agent}", roles=frozenset({"agent"}), agent=agent)
        return place.gate.decide(call, principal=principal).reason

    try:
        assert decide("worker-7", BAD) is Reason.ATTACK_DETECTED
        assert decide("worker-7") is Reason.REVOKED
        assert decide("w\u043erker-7") is Reason.REVOKED
        assert decide("worker-8") is Reason.NONE
        with place.store.reader() as reader:
            assert trust_in(reader, "worker-8").score < trust_in(reader, "courier-8").score
    finally:
        place.close()


def test_the_switch_works_from_the_command_line_on_a_gate_that_already_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    place = opened(home, BASE)
    try:
        assert place.gate.decide(READ).outcome is Outcome.ALLOW
        assert aegis("kill", "--reason", "incident", "--home", home).returncode == 0
        assert place.gate.decide(READ).reason is Reason.REVOKED
        (row,) = read_json(aegis("containment", "list", "--home", home, "--json"))["items"]
        assert (row["of"], row["cause"]) == ("everything", "incident")
        assert aegis("kill", "--release", "--home", home).returncode == 0
        assert place.gate.decide(READ).outcome is Outcome.ALLOW
        assert aegis("containment", "release", "everything", "--home", home).returncode == 2
    finally:
        place.close()
