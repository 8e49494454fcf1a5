"""The learned baseline as an agent, an auditor and the person who is asked meet it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.errors import ConfigError
from support.approvals import resolve
from support.deployments import TOOLS, deployment
from support.people import person
from support.served import served
from support.shell import aegis, read_json

CONFIG = (
    f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}"
    "guards: {behaviour: {mode: hold, after: 100}, loops: {mode: off}}\n"
)


def read(number: int, folder: str = "/srv/notes", call_id: str | None = None) -> ToolCall:
    return ToolCall(tool="read_file", arguments={"path": f"{folder}/{number}.txt"}, call_id=call_id)


def test_a_call_that_is_far_from_usual_is_held_and_a_yes_teaches_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    place = deployment(home, CONFIG)
    try:
        for number in range(400):
            assert place.gate.decide(read(number)).outcome is Outcome.ALLOW
        far = read(1, "/data/payroll", call_id="far")
        held = place.gate.decide(far)
        assert (held.outcome, held.reason) == (Outcome.REQUIRE_APPROVAL, Reason.ANOMALY)
        assert "/data/payroll" in held.findings[-1].evidence
        assert place.gate.decide(read(2, "/data/payroll")).reason is Reason.ANOMALY
        assert held.approval is not None
        resolve(place.gate, held.approval.id)
        assert place.gate.decide(far).outcome is Outcome.ALLOW
        assert place.gate.decide(read(3, "/data/payroll")).outcome is Outcome.ALLOW
    finally:
        place.close()
    again = deployment(home, CONFIG)
    try:
        assert again.gate.usual.last("bot")[0].learned >= 384
        assert again.gate.decide(read(1, "/root/keys")).reason is Reason.ANOMALY
    finally:
        again.close()


def test_a_new_agent_of_a_known_program_begins_with_what_is_usual_of_it(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home", CONFIG)

    def decide(agent: str, call: ToolCall) -> Reason:
        principal = Principal(id=agent, roles=frozenset({"agent"}), agent=agent)
        return place.gate.decide(call, principal=principal).reason

    try:
        for number in range(200):
            assert decide("worker-1", read(number)) is Reason.NONE
        assert decide("worker-2", read(1, "/data/payroll")) is Reason.ANOMALY
        assert decide("courier-1", read(1, "/data/payroll")) is Reason.NONE
    finally:
        place.close()


TRUSTED = (
    CONFIG
    + """policies:
- name: allow
  cedar: permit (principal, action, resource);
- name: distrusted-agents-ask
  outcome: require_approval
  cedar: forbid (principal, action, resource) when { context.agent.trust < 40 };
"""
)


def test_a_policy_holds_the_very_next_call_of_an_agent_that_lost_trust_and_of_no_other(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home", TRUSTED)
    try:
        assert place.gate.decide(read(1)).outcome is Outcome.ALLOW
        for number in range(3):
            place.gate.decide(read(number, "../../../etc/shadow"))
        held = place.gate.decide(read(2))
        assert (held.outcome, held.reason) == (Outcome.REQUIRE_APPROVAL, Reason.APPROVAL_REQUIRED)
        other = Principal(id="other", roles=frozenset({"agent"}), agent="other")
        assert place.gate.decide(read(2), principal=other).outcome is Outcome.ALLOW
    finally:
        place.close()


def test_a_no_lowers_the_trust_in_an_agent_and_a_policy_selects_by_it(tmp_path: Path) -> None:
    text = CONFIG + (
        "policies:\n"
        "- {name: ask, select: {tool: send_email}, deny: {}, outcome: require_approval}\n"
        "- {name: distrusted, select: {effect: read, trust_below: 40}, deny: {}, outcome: require_approval}\n"
    )
    home = tmp_path / "home"
    place = deployment(home, text)
    try:
        assert place.gate.decide(read(1)).outcome is Outcome.ALLOW
        for number in range(3):
            mail = ToolCall(tool="send_email", arguments={"to": f"a{number}@example.com"})
            held = place.gate.decide(mail)
            assert held.approval is not None
            resolve(place.gate, held.approval.id, "deny", reason="not now")
    finally:
        place.close()
    again = deployment(home, text)
    try:
        held = again.gate.decide(read(2))
        assert (held.outcome, held.reason) == (Outcome.REQUIRE_APPROVAL, Reason.APPROVAL_REQUIRED)
        other = Principal(id="other", roles=frozenset({"agent"}), agent="other")
        assert again.gate.decide(read(2), principal=other).outcome is Outcome.ALLOW
    finally:
        again.close()


def test_attacks_of_a_program_count_against_its_next_agent_and_against_no_other(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home", TRUSTED)

    def decide(agent: str, call: ToolCall) -> Reason:
        principal = Principal(id=agent, roles=frozenset({"agent"}), agent=agent)
        return place.gate.decide(call, principal=principal).reason

    try:
        for number in range(6):
            assert decide("worker-1", read(number, "../../../etc/shadow")) is Reason.ATTACK_DETECTED
        assert decide("worker-2", read(1)) is Reason.APPROVAL_REQUIRED
        assert decide("courier-1", read(1)) is Reason.NONE
    finally:
        place.close()


def test_no_policy_can_permit_by_trust(tmp_path: Path) -> None:
    loose = (
        CONFIG
        + """policies:
- name: trusted-agents-may
  cedar: permit (principal, action, resource) when { context.agent.trust > 80 };
"""
    )
    with pytest.raises(ConfigError, match="may not read the trust"):
        deployment(tmp_path / "home", loose)


def test_an_auditor_reads_what_is_usual_of_an_agent(tmp_path: Path) -> None:
    with served(tmp_path / "home") as gateway:
        for _ in range(3):
            gateway.decide()
        gateway.decide(arguments={"path": "../../../../etc/shadow"})
        seen = gateway.ask("GET", "/v1/agents/bot/behaviour", key="auditor").json
        assert (seen["agent"], seen["baseline"]["calls"], seen["contained"]) == ("bot", 4, False)
        assert seen["trust"]["score"] < 50
        assert seen["score"]["unusual"] is False
        assert gateway.ask("GET", "/v1/agents/bot/behaviour").status == 403
        dana = person(gateway, "dana", "admin", "auditor")
        dana.sign_in()
        page = dana.get("/agents/bot").body.decode()
        assert f"trust {seen['trust']['score']} of 100" in page
        assert "calls were learned from; the last one was usual" in page
        assert gateway.ask("GET", "/v1/agents/nobody/behaviour", key="auditor").json["baseline"] is None


def test_what_a_contained_session_wrote_is_found_on_request_and_those_it_reached_are_held(tmp_path: Path) -> None:
    text = f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}cascade: {{do: off}}\n"
    with served(tmp_path / "home", text) as gateway:
        wrote: dict[str, Any] = {
            "tool": "write_file",
            "arguments": {"path": "/srv/plan.txt", "content": "x"},
            "session": "first",
        }
        assert gateway.decide(**wrote).json["decision"] == "allow"
        gateway.decide(arguments={"path": "/srv/plan.txt"}, session="second")
        gateway.decide(arguments={"path": "/srv/other.txt"}, session="third")
        for number in range(5):
            gateway.decide(arguments={"path": f"../../../../etc/shadow{number}"}, session="first")
        contained = gateway.ask("GET", "/v1/containment", key="auditor").json["items"]
        assert [one["session"] for one in contained] == ["first"]
        place = f"/v1/containment/{contained[0]['id']}/downstream"
        found = gateway.ask("GET", place, key="auditor").json
        assert [one["session"] for one in found["items"]] == ["second"]
        assert found["items"][0]["way"][0]["by"] == "read `/srv/plan.txt`"
        assert gateway.ask("POST", place, {"do": "hold"}, key="auditor").status == 403
        asked = ("containment", "downstream", contained[0]["id"], "--url", f"http://127.0.0.1:{gateway.port}")
        auditor, root = ({"AEGIS_API_KEY": gateway.credentials.text(name)} for name in ("auditor", "root"))
        assert "first: read `/srv/plan.txt`" in aegis(*asked, env=auditor).stdout
        assert aegis(*asked, "--do", "hold", env=auditor).returncode != 0
        assert read_json(aegis(*asked, "--do", "hold", "--json", env=root)) == found
        assert (found["followed"], found["items"][0]["do"]) == (False, "none")
        again = {**wrote, "session": "second"}
        assert gateway.decide(**again).json["decision"] == "require_approval"
        assert gateway.decide(**{**again, "session": "third"}).json["decision"] == "allow"
        assert gateway.decide(arguments={"path": "/srv/plan.txt"}, session="second").json["decision"] == "allow"
        assert gateway.ask("GET", "/v1/containment/nothing/downstream", key="auditor").status == 404
