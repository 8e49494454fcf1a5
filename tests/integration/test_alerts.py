"""Alerts that people can live with: grouped, muted, passed on, and summed up by the week."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.cockpit import alerting
from aegis.core.ports import Document
from aegis.core.times import MICROS, from_rfc3339, rfc3339
from support.people import Person, person
from support.served import Served, served
from support.shell import aegis, read_json
from support.webhooks import SECRET, Receiver, receiver

__all__ = ["receiver"]
WAIT_S = 120
ATTACK: dict[str, Any] = {"path": "../../../../etc/shadow"}


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(alerting, "PERIOD_S", 0.05)
    with served(tmp_path / "home") as running:
        yield running


@pytest.fixture
def dana(gateway: Served) -> Person:
    dana = person(gateway, "dana", "approver", "auditor", "admin")
    dana.sign_in()
    return dana


def soon(found: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


def looked_twice(gateway: Served) -> None:
    rounds = gateway.app.cockpit.alerting.rounds
    soon(lambda: gateway.app.cockpit.alerting.rounds >= rounds + 2)


def watch(receiver: Receiver, kind: str = "alarms", **more: str) -> dict[str, str]:
    return {
        "name": "the shop", "watch": kind, "limit": "1", "kind": "webhook", "url": receiver.url, "secret": SECRET,
        "private": "yes", **more,
    }  # fmt: skip


def suspend(gateway: Served, session: str) -> None:
    """Have a session suspended, as the fifth blocked attack does."""
    for _ in range(5):
        gateway.decide(arguments=ATTACK, session=session)


def rewrite(gateway: Served, collection: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Let time pass for what is kept, without waiting for it."""
    with gateway.deployment.store.transaction() as transaction:
        (stored,) = transaction.documents(collection)
        body = json.dumps(change(json.loads(stored.body))).encode()
        transaction.put_document(
            Document(collection=collection, key=stored.key, version=stored.version + 1, body=body, state=stored.state)
        )


def long_ago(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule whose word went out a minute earlier."""
    told = {group: {**one, "since": one["since"] - 61 * MICROS} for group, one in rule["told"].items()}
    return {**rule, "told": told}


def alerts(gateway: Served, key: str = "auditor") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.ask("GET", "/v1/alerts", key=key).json["items"]
    return found


def texts(receiver: Receiver) -> list[str]:
    return [json.loads(body)["data"]["text"] for _, body in receiver.taken]


def test_alarms_of_one_cause_are_one_alert_that_is_told_once(gateway: Served, dana: Person, receiver: Receiver) -> None:
    assert dana.post("/alerts", watch(receiver)).status == 303
    for session in ("s-1", "s-2", "s-3"):
        suspend(gateway, session)
    (one,) = alerts(gateway)
    assert (one["agent"], one["severity"], one["count"], one["sessions"]) == ("bot", "high", 3, 3)
    assert one["first"] < one["last"]
    soon(lambda: receiver.taken)
    looked_twice(gateway)
    (text,) = texts(receiver)
    assert text.startswith(
        "high: the agent `bot` met a condition of containment: 5 calls blocked (attack_detected) within"
    )
    assert "nobody has looked" in dana.get("/alerts").body.decode()


def test_a_mute_silences_the_telling_alone_is_on_record_and_is_taken_back(
    gateway: Served, dana: Person, receiver: Receiver
) -> None:
    suspend(gateway, "s-1")
    (one,) = alerts(gateway)
    path = f"/v1/alerts/{one['id']}"
    wish = {"seconds": 3_600, "reason": "a drill until noon"}
    assert gateway.ask("POST", f"{path}/mute", wish, key="auditor").status == 403
    assert gateway.ask("POST", f"{path}/mute", {"seconds": 3_600}, key="ann").status == 422
    assert gateway.ask("POST", f"{path}/mute", {**wish, "seconds": 10**7}, key="ann").status == 422
    assert gateway.ask("POST", "/v1/alerts/none/mute", wish, key="ann").status == 404
    assert gateway.ask("POST", f"{path}/mute", wish, key="ann").status == 200
    assert dana.post("/alerts", watch(receiver)).status == 303
    suspend(gateway, "s-2")
    refused = gateway.decide(session="s-2").json
    assert (refused["decision"], refused["reason"]) == ("block", "revoked")  # what is told of still holds
    looked_twice(gateway)
    assert receiver.taken == []
    (one,) = alerts(gateway)
    assert one["count"] == 2
    assert (one["muted"]["by"], one["muted"]["reason"]) == ("ann", "a drill until noon")
    page = dana.get("/alerts").body.decode()
    assert "a drill until noon" in page
    kept = gateway.ask("GET", "/v1/receipts?kind=config", key="auditor").json["items"][1]
    assert (kept["action"], kept["principal"], kept["agent"]) == ("alert_mute", "ann", "bot")
    assert gateway.ask("POST", f"{path}/unmute", key="root").status == 200
    assert gateway.ask("POST", f"{path}/unmute", key="root").status == 404
    soon(lambda: receiver.taken)
    assert "2 times from" in texts(receiver)[0]


def test_a_mute_ends_by_itself(gateway: Served, dana: Person, receiver: Receiver) -> None:
    suspend(gateway, "s-1")
    (one,) = alerts(gateway)
    wish = {"seconds": 60, "reason": "briefly"}
    assert gateway.ask("POST", f"/v1/alerts/{one['id']}/mute", wish, key="ann").status == 200
    assert alerts(gateway)[0]["muted"]
    rewrite(gateway, "alert_marks", lambda mark: {**mark, "muted_until": mark["seen_at"] + 1})
    assert alerts(gateway)[0]["muted"] is None
    assert dana.post("/alerts", watch(receiver)).status == 303
    suspend(gateway, "s-2")
    soon(lambda: receiver.taken)


def test_what_is_critical_is_never_muted(gateway: Served, dana: Person, receiver: Receiver) -> None:
    assert dana.post("/alerts", watch(receiver)).status == 303
    assert gateway.ask("POST", "/v1/kill", {"reason": "incident 12"}, key="root").status == 200
    (one,) = alerts(gateway)
    assert (one["action"], one["severity"]) == ("kill", "critical")
    refused = gateway.ask("POST", f"/v1/alerts/{one['id']}/mute", {"seconds": 3_600, "reason": "too loud"}, key="root")
    assert refused.status == 409
    soon(lambda: receiver.taken)
    assert texts(receiver)[0].startswith("critical: every agent was stopped")


def test_where_nobody_looks_a_second_address_is_told(gateway: Served, dana: Person, receiver: Receiver) -> None:
    form = watch(
        receiver, escalate_minutes="1", escalate_kind="slack", escalate_url=receiver.url + "/second",
        escalate_private="yes",
    )  # fmt: skip
    assert dana.post("/alerts", {**form, "escalate_minutes": "soon"}).status == 422
    assert dana.post("/alerts", form).status == 303
    suspend(gateway, "s-1")
    soon(lambda: receiver.taken)
    looked_twice(gateway)
    assert len(receiver.taken) == 1
    rewrite(gateway, "alert_rules", long_ago)
    soon(lambda: len(receiver.taken) == 2)
    assert (
        "nobody has looked at this for a minute: the agent `bot` met a condition"
        in json.loads(receiver.taken[1][1])["text"]
    )
    looked_twice(gateway)
    assert len(receiver.taken) == 2
    alarms = gateway.ask("GET", "/v1/receipts?kind=alarm", key="auditor").json["items"]
    assert alarms[0]["action"] == "alert_escalated"


def test_an_alert_that_somebody_has_seen_is_not_passed_on(gateway: Served, dana: Person, receiver: Receiver) -> None:
    form = watch(
        receiver, escalate_minutes="1", escalate_kind="slack", escalate_url=receiver.url, escalate_private="yes"
    )
    assert dana.post("/alerts", form).status == 303
    suspend(gateway, "s-1")
    soon(lambda: receiver.taken)
    (one,) = alerts(gateway)
    assert dana.post(f"/alerts/groups/{one['id']}", {"to": "seen"}).status == 303
    assert alerts(gateway)[0]["seen"]["by"] == "dana"
    rewrite(gateway, "alert_rules", long_ago)
    looked_twice(gateway)
    assert len(receiver.taken) == 1


def test_a_digest_is_made_of_the_log_alone_and_sent_by_the_week(
    gateway: Served, dana: Person, receiver: Receiver
) -> None:
    assert dana.post("/alerts", watch(receiver, "digest")).status == 303
    looked_twice(gateway)
    gateway.decide(session="s-0")
    suspend(gateway, "s-1")
    (one,) = alerts(gateway)
    assert gateway.ask(
        "POST", f"/v1/alerts/{one['id']}/mute", {"seconds": 3_600, "reason": "drill"}, key="ann"
    ).status == 200  # fmt: skip
    now = gateway.app.cockpit.services.clock()
    period = f"since={rfc3339(now - 600 * MICROS)}&until={rfc3339(now)}"
    found = gateway.ask("GET", f"/v1/alerts/digest?{period}", key="auditor").json
    assert found == gateway.ask("GET", f"/v1/alerts/digest?{period}", key="root").json
    assert found["complete"]
    assert (found["decisions"]["allow"], found["decisions"]["block"]) == (1, 5)
    assert [alert["count"] for alert in found["alerts"]] == [1]
    assert found["tuned"]["counts"] == {"alert_add": 1, "alert_mute": 1}
    assert found["changed"]["counts"]["suspend"] == 1
    assert gateway.ask("GET", "/v1/alerts/digest", key="bot").status == 403
    rewrite(gateway, "alert_rules", lambda rule: {**rule, "state": "week:1"})
    soon(lambda: receiver.taken)
    (text,) = texts(receiver)
    assert "What was tuned" in text
    start, end = (from_rfc3339(word.rstrip(":")) for word in text.split()[1:4:2])
    assert end - start == 7 * 86_400 * MICROS - 1
    looked_twice(gateway)
    assert len(receiver.taken) == 1


def test_the_command_line_lists_mutes_and_sums_up(gateway: Served) -> None:
    suspend(gateway, "s-1")
    home = gateway.deployment.home
    (one,) = read_json(aegis("alerts", "list", "--home", home, "--json"))["items"]
    assert one["count"] == 1
    assert aegis("alerts", "mute", one["id"], "--reason", "drill", "--for", "soon", "--home", home).returncode == 2
    muted = aegis("alerts", "mute", one["id"], "--reason", "drill", "--for", "4h", "--home", home)
    assert muted.returncode == 0, muted.stderr
    (listed,) = alerts(gateway)
    length = from_rfc3339(listed["muted"]["until"]) - from_rfc3339(listed["last"])
    assert 14_000 < length / MICROS < 15_000
    assert "muted until" in aegis("alerts", "list", "--home", home).stdout
    assert aegis("alerts", "unmute", one["id"], "--home", home).returncode == 0
    assert aegis("alerts", "seen", one["id"], "--home", home).returncode == 0
    text = aegis("alerts", "digest", "--home", home).stdout
    assert "What was tuned: 1 alert mute, 1 alert seen, 1 alert unmute" in text
    assert read_json(aegis("alerts", "digest", "--home", home, "--json"))["tuned"]["counts"]["alert_mute"] == 1
