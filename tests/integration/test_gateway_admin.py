"""Administering over HTTP: the kill switch, and the configuration."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.deployments import TOOLS
from support.served import Served, served

CONFIG = f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}"
STRICT = "version: 1\nprofile: standard\nlimits: {rate: unlimited}\ntools: {read_file: {risk: critical}}\n"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home", CONFIG) as running:
        yield running


def test_a_stopped_agent_is_refused_from_the_next_call_on(gateway: Served) -> None:
    assert gateway.decide().json["decision"] == "allow"
    stopped = gateway.ask("POST", "/v1/agents/bot/revoke", {"reason": "odd behaviour"}, key="root")
    assert (stopped.status, stopped.json["state"]) == (200, "revoked")
    decision = gateway.decide().json
    assert (decision["decision"], decision["reason"]) == ("block", "revoked")
    assert gateway.decide(key="other").json["decision"] == "allow"
    restored = gateway.ask("POST", "/v1/agents/bot/restore", {"reason": "cleared"}, key="root")
    assert restored.json["state"] == "active"
    assert gateway.decide().json["decision"] == "allow"
    actions = gateway.ask("GET", "/v1/receipts?kind=revocation", key="auditor").json["items"]
    assert [(one["action"], one["agent"], one["principal"]) for one in actions] == [
        ("restore", "bot", "root"),
        ("revoke", "bot", "root"),
    ]


def test_a_repeat_of_an_allowed_call_is_refused_after_the_switch(gateway: Served) -> None:
    assert gateway.decide(call_id="again").json["decision"] == "allow"
    gateway.ask("POST", "/v1/agents/bot/revoke", key="root")
    assert gateway.decide(call_id="again").json["reason"] == "revoked"


def test_the_switch_of_another_process_works_on_the_next_call(gateway: Served) -> None:
    assert gateway.decide().json["decision"] == "allow"
    script = (
        "import sys; from pathlib import Path\n"
        "from aegis.bootstrap import open_deployment\n"
        "from aegis.gate.control import set_agent\n"
        "place = open_deployment(Path(sys.argv[1]) / 'aegis.yaml', Path(sys.argv[1]))\n"
        "place.gate.record(set_agent('bot', state='revoked', reason='', principal='operator'))\n"
        "place.close()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(gateway.deployment.home)], check=True, timeout=60)
    assert gateway.decide().json["reason"] == "revoked"


def test_agents_are_listed_with_their_state(gateway: Served) -> None:
    gateway.decide()
    gateway.ask("POST", "/v1/agents/z%2Fodd%20name/revoke", {"reason": "unused"}, key="root")
    registered = gateway.ask("POST", "/v1/agents", {"agent": "newcomer"}, key="root")
    assert registered.status == 201
    assert gateway.ask("POST", "/v1/agents", {"agent": "newcomer"}, key="root").status == 409
    assert gateway.ask("POST", "/v1/agents", {"agent": "z/odd name"}, key="root").status == 409
    listed = gateway.ask("GET", "/v1/agents", key="root").json["items"]
    assert [(one["agent"], one["state"]) for one in listed] == [
        ("bot", "active"), ("newcomer", "active"), ("other", "active"), ("seer", "active"), ("z/odd name", "revoked"),
    ]  # fmt: skip
    page = gateway.ask("GET", "/v1/agents?limit=2", key="root").json
    following = gateway.ask("GET", f"/v1/agents?limit=2&cursor={page['next']}", key="root").json
    assert [one["agent"] for one in following["items"]] == ["other", "seer"]
    assert gateway.ask("GET", "/v1/agents?state=revoked", key="root").json["items"][0]["reason"] == "unused"
    assert gateway.ask("GET", "/v1/agents/z%2Fodd%20name", key="root").json["state"] == "revoked"
    assert gateway.ask("GET", "/v1/agents/nobody", key="root").status == 404


def test_a_malformed_switch_is_422(gateway: Served) -> None:
    bodies: tuple[Any, ...] = ({"reason": 7}, {"why": "x"}, [], {"reason": "a" * 1_001})
    for body in bodies:
        assert gateway.ask("POST", "/v1/agents/bot/revoke", body, key="root").status == 422
    assert gateway.ask("POST", f"/v1/agents/{'a' * 300}/revoke", key="root").status == 422
    assert gateway.ask("POST", "/v1/agents", {}, key="root").status == 422
    assert gateway.decide().json["decision"] == "allow"


def test_the_configuration_is_shown_with_the_digest_of_its_receipts(gateway: Served) -> None:
    shown = gateway.ask("GET", "/v1/config", key="root").json
    assert shown["digest"] == gateway.decide().json["policy_digest"]
    assert shown["config"]["tools"]["deploy"]["risk"] == "critical"


def test_a_name_that_no_agent_can_have_is_not_stopped(gateway: Served) -> None:
    for name in ("%20", "x" * 300):
        assert gateway.ask("POST", f"/v1/agents/{name}/revoke", {}, key="root").status == 422


def test_a_configuration_is_replaced_at_once_on_record_and_in_the_file(gateway: Served) -> None:
    assert gateway.decide().json["decision"] == "allow"
    answer = gateway.ask("PUT", "/v1/config", STRICT.encode(), key="root")
    assert answer.status == 200
    decision = gateway.decide().json
    assert (decision["decision"], decision["policy_digest"]) == ("block", answer.json["digest"])
    assert (gateway.deployment.home / "aegis.yaml").read_text() == STRICT
    newest = gateway.ask("GET", "/v1/receipts?kind=config&limit=1", key="auditor").json["items"][0]
    assert (newest["policy_digest"], newest["principal"]) == (answer.json["digest"], "root")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"profile: standard",
        b"version: 2",
        b"version: 1\ntoools: {}",
        b"version: 1\nversion: 1",
        b"\xff",
        b"[",
        b"a: &a [*a]",
    ],
)
def test_a_configuration_that_does_not_compile_changes_nothing(gateway: Served, text: bytes) -> None:
    before = gateway.ask("GET", "/v1/config", key="root").json
    answer = gateway.ask("PUT", "/v1/config", text, key="root")
    assert answer.status == 422
    assert answer.code
    assert gateway.ask("GET", "/v1/config", key="root").json == before
    assert (gateway.deployment.home / "aegis.yaml").read_text() == CONFIG


def test_a_candidate_is_checked_with_line_and_pointer(gateway: Served) -> None:
    good = gateway.ask("POST", "/v1/config:check", STRICT.encode(), key="root").json
    assert good["valid"]
    assert good["problems"] == []
    bad = gateway.ask("POST", "/v1/config:check", b"version: 1\ntools:\n  a: {risk: hihg}\n", key="root").json
    assert not bad["valid"]
    assert (bad["problems"][0]["line"], bad["problems"][0]["pointer"]) == (3, "/tools/a/risk")
    assert gateway.decide().json["decision"] == "allow"


@pytest.mark.claim("COK-22")
def test_an_agent_that_holds_a_key_is_listed_and_stopped_before_its_first_call(gateway: Served) -> None:
    gateway.credentials.add("fresh", "agent", agent="fresh")
    assert gateway.ask("GET", "/v1/agents/fresh", key="root").json["state"] == "active"
    assert gateway.ask("POST", "/v1/agents/fresh/revoke", {"reason": "not yet"}, key="root").status == 200
    assert gateway.decide(key="fresh").json["reason"] == "revoked"
    gateway.credentials.add("gone", "agent", agent="gone")
    gateway.credentials.revoke("gone")
    assert gateway.ask("GET", "/v1/agents/gone", key="root").status == 404


@pytest.mark.claim("COK-19")
def test_a_candidate_is_replayed_over_recorded_calls(gateway: Served) -> None:
    for number in range(3):
        gateway.decide(arguments={"path": str(number)})
    gateway.decide("deploy")
    size = gateway.ask("GET", "/v1/receipts?limit=1", key="auditor").json["items"][0]["index"]
    found = gateway.ask("POST", "/v1/config:replay", STRICT.encode(), key="root").json
    assert found["replayed"] == 4
    assert found["before"] == {"allow": 3, "block": 1}
    assert found["after"]["block"] >= 3
    assert {one["tool"] for one in found["changed"] if one["after"]["decision"] == "block"} == {"read_file"}
    assert gateway.ask("GET", "/v1/receipts?limit=1", key="auditor").json["items"][0]["index"] == size
    some = gateway.ask("POST", "/v1/config:replay?tool=deploy&limit=1", CONFIG.encode(), key="root").json
    assert (some["replayed"], some["changed"]) == (1, [])
    assert found["span"]["complete"]
    assert found["span"]["since"] < found["span"]["until"]
    (row,) = [row for row in found["summary"] if row["after"]["decision"] == "block" and row["tool"] == "read_file"]
    assert (row["agent"], row["before"]["decision"], row["calls"]) == ("bot", "allow", 3)
    part = gateway.ask("POST", "/v1/config:replay?limit=2", STRICT.encode(), key="root").json
    assert not part["span"]["complete"]
    assert part["span"]["since"] > found["span"]["since"]


def test_a_changed_file_is_read_again(gateway: Served) -> None:
    file = gateway.deployment.home / "aegis.yaml"
    file.write_text(STRICT)
    decision = ""
    for _ in range(200):
        decision = gateway.decide().json["decision"]
        if decision == "block":
            break
        time.sleep(0.05)
    assert decision == "block"


def test_a_file_that_others_can_write_is_not_read(gateway: Served) -> None:
    file = gateway.deployment.home / "aegis.yaml"
    file.write_text(STRICT)
    os.chmod(file, 0o666)  # noqa: PTH101
    assert not gateway.app.reloads.now("signal")
    assert gateway.decide().json["decision"] == "allow"
    file.chmod(0o600)
    assert gateway.app.reloads.now("signal")
    assert gateway.decide().json["decision"] == "block"
