"""Alerts: looked at by the gateway itself, told once, signed, and kept until somebody takes them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest

from aegis.cockpit import alerting
from aegis.outbound.send import verify_webhook
from support.mail_server import mail_host
from support.missions import claims
from support.people import Person, person
from support.served import Served, served
from support.webhooks import SECRET, Receiver, receiver

__all__ = ["receiver"]
WAIT_S = 120


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home") as running:
        yield running


def signed_in(gateway: Served) -> Person:
    dana = person(gateway, "dana", "approver", "auditor", "admin")
    dana.sign_in()
    return dana


@pytest.fixture
def dana(gateway: Served) -> Person:
    return signed_in(gateway)


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody whose gateway stays as it is, since it takes nothing of what is sent."""
    with served(tmp_path_factory.mktemp("refused") / "home") as running:
        yield signed_in(running)


def soon(found: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < end
        time.sleep(0.1)


def form(receiver: Receiver, watch: str, limit: int, **more: str) -> dict[str, str]:
    return {
        "name": "the shop", "watch": watch, "limit": str(limit), "kind": "webhook", "url": receiver.url,
        "secret": SECRET, "private": "yes", **more,
    }  # fmt: skip


@pytest.mark.claim("COK-11")
def test_too_many_blocked_calls_are_told_once_signed_and_on_record(
    gateway: Served, dana: Person, receiver: Receiver
) -> None:
    assert dana.post("/alerts", form(receiver, "blocks", 2)).status == 303
    for number in range(4):
        gateway.decide("query_db", arguments={"sql": "SELECT 1; DROP TABLE t; --"}, call_id=f"drop-{number}")
    soon(lambda: receiver.taken)
    headers, body = receiver.taken[0]
    told = verify_webhook(SECRET, headers, body)
    assert told["type"] == "alert.blocks"
    assert "4 calls were blocked" in told["data"]["text"]
    looked_twice(gateway)  # says nothing new
    assert len(receiver.taken) == 1
    alarms = gateway.ask("GET", "/v1/receipts?kind=alarm", key="auditor").json["items"]
    assert [alarm["action"] for alarm in alarms] == ["alert_blocks"]
    assert "delivered" in dana.get("/alerts").body.decode()


def test_a_rule_that_is_broken_for_the_first_time_is_told(gateway: Served, dana: Person, receiver: Receiver) -> None:
    gateway.decide("query_db", arguments={"sql": "SELECT 1; DROP TABLE t; --"}, call_id="known")
    assert dana.post("/alerts", form(receiver, "new_rule", 1)).status == 303
    soon(lambda: b"at:" in _states(gateway))
    gateway.decide("query_db", arguments={"sql": "SELECT 2; DROP TABLE t; --"}, call_id="known-too")
    gateway.decide(arguments={"path": "../../../../etc/shadow"}, call_id="new")
    soon(lambda: receiver.taken)
    text = json.loads(receiver.taken[0][1])["data"]["text"]
    assert "path-" in text or "file-" in text
    assert "sql-executed" not in text


def test_a_held_call_that_waits_too_long_is_told(gateway: Served, dana: Person, receiver: Receiver) -> None:
    assert dana.post("/alerts", form(receiver, "waiting", 1, kind="slack", secret="")).status == 303
    gateway.decide("send_email", arguments={"to": "ada@example.com"}, call_id="late")
    soon(lambda: receiver.taken)
    assert "`send_email` by the agent `bot` waits" in json.loads(receiver.taken[0][1])["text"]


def test_a_budget_near_its_end_is_told_once(gateway: Served, dana: Person, receiver: Receiver) -> None:
    gateway.credentials.add("issuer", "issuer")
    mission = claims(budgets={"calls": 10})
    issued = gateway.ask("POST", "/v1/missions", {"mission": mission}, key="issuer").json["mission_id"]
    opened = {"session": "s", "mission": issued, "available_tools": [], "task": "read"}
    assert gateway.ask("POST", "/v1/sessions", opened).status == 201
    assert dana.post("/alerts", form(receiver, "budget", 50)).status == 303
    for number in range(4):
        gateway.decide(arguments={"path": f"/ws/{number}.txt"}, session="s", call_id=f"c{number}")
    looked_twice(gateway)
    assert receiver.taken == []
    for number in range(4, 6):
        gateway.decide(arguments={"path": f"/ws/{number}.txt"}, session="s", call_id=f"c{number}")
    soon(lambda: receiver.taken)
    text = json.loads(receiver.taken[0][1])["data"]["text"]
    assert f"50 % or more are used of `calls` of the mission {issued}" in text
    gateway.decide(arguments={"path": "/ws/7.txt"}, session="s", call_id="c7")
    looked_twice(gateway)
    assert len(receiver.taken) == 1


def test_a_silence_is_told_once_for_as_long_as_it_lasts(
    gateway: Served, dana: Person, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerting, "PERIOD_S", 0.01)
    monkeypatch.setattr(alerting, "MINUTE_US", 200_000)
    assert dana.post("/alerts", form(receiver, "silent", 1)).status == 303
    soon(lambda: receiver.taken)
    rounds = gateway.app.cockpit.alerting.rounds
    soon(lambda: gateway.app.cockpit.alerting.rounds >= rounds + 60)  # several such minutes
    assert len(receiver.taken) == 1
    assert "nothing was recorded for" in json.loads(receiver.taken[0][1])["data"]["text"]


def looked_twice(gateway: Served) -> None:
    """Wait until the gateway has looked at its alerts twice more."""
    alerting = gateway.app.cockpit.alerting
    rounds = alerting.rounds
    soon(lambda: alerting.rounds >= rounds + 2)


def test_an_alert_goes_by_mail_with_names_that_cannot_write_headers(gateway: Served, dana: Person) -> None:
    with mail_host() as host:
        mail = {
            "name": "the shop\r\nBcc: everybody@example.com", "watch": "waiting", "limit": "1", "kind": "email",
            "url": f"smtp://127.0.0.1:{host.port}", "private": "yes", "sender": "aegis@example.com",
            "to": "ops@example.com, on-call@example.com",
        }  # fmt: skip
        assert dana.post("/alerts", mail).status == 303
        gateway.decide("send_email", arguments={"to": "ada@example.com"}, call_id="late")
        soon(lambda: host.mails)
        found = message_from_bytes(host.mails[0], policy=default)
        assert found["to"] == "ops@example.com, on-call@example.com"
        assert found["bcc"] is None
        body = found.get_body()
        assert body is not None
        assert "`send_email` by the agent `bot` waits" in body.get_content()
        soon(lambda: "delivered" in dana.get("/alerts").body.decode())
        assert "email to ops@example.com, on-call@example.com" in dana.get("/alerts").body.decode()


def test_a_mail_server_that_says_no_for_good_is_not_asked_again(gateway: Served, dana: Person) -> None:
    with mail_host(RCPT=b"550 nobody of that name\r\n") as host:
        mail = {
            "name": "mail", "watch": "silent", "limit": "60", "kind": "email", "url": f"smtp://127.0.0.1:{host.port}",
            "private": "yes", "sender": "aegis@example.com", "to": "ops@example.com",
        }  # fmt: skip
        assert dana.post("/alerts", mail).status == 303
        rule = dana.get("/alerts").body.decode().partition('action="/alerts/0')[2].partition("/")[0]
        assert dana.post(f"/alerts/0{rule}/test").status == 303
        soon(lambda: "given up" in dana.get("/alerts").body.decode())
        assert sum(line.startswith("RCPT") for line in host.said) == 1


def test_a_test_is_sent_and_what_nobody_takes_is_kept(gateway: Served, dana: Person, receiver: Receiver) -> None:
    receiver.status = 404
    assert dana.post("/alerts", form(receiver, "silent", 60)).status == 303
    rule = dana.get("/alerts").body.decode().partition('action="/alerts/0')[2].partition("/")[0]
    assert dana.post(f"/alerts/0{rule}/test").status == 303
    soon(lambda: "given up" in dana.get("/alerts").body.decode())
    page = dana.get("/alerts").body.decode()
    message = page.partition('action="/alerts/deliveries/')[2].partition('"')[0]
    receiver.status = 200
    assert dana.post(f"/alerts/deliveries/{message}").status == 303
    soon(lambda: receiver.taken)
    assert json.loads(receiver.taken[0][1])["type"] == "alert.test"
    assert dana.post(f"/alerts/0{rule}/remove").status == 303
    assert "No alerts" in dana.get("/alerts").body.decode()


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://example.com/hook", "private": ""},
        {"url": "ftp://example.com/"},
        {"url": "not a url"},
        {"secret": ""},
        {"watch": "everything"},
        {"limit": "0"},
        {"limit": "many"},
        {"watch": "budget", "limit": "101"},
        {"name": " "},
        {"kind": "pigeon"},
        {"kind": "email", "url": "smtps://mail.example.com", "sender": "a@example.com", "to": ""},
        {"kind": "email", "url": "smtps://mail.example.com", "sender": "a@example.com", "to": "b@x.y\r\nDATA"},
        {"kind": "email", "url": "smtps://mail.example.com", "sender": "nobody", "to": "b@example.com"},
        {"kind": "email", "url": "smtp://mail.example.com", "sender": "a@x.y", "to": "b@x.y", "private": ""},
        {"kind": "email", "url": "https://mail.example.com", "sender": "a@x.y", "to": "b@x.y"},
        {"kind": "email", "url": "smtps://user:password@mail.example.com", "sender": "a@x.y", "to": "b@x.y"},
    ],
)
def test_an_alert_that_cannot_be_is_refused(refused: Person, receiver: Receiver, wrong: dict[str, str]) -> None:
    assert refused.post("/alerts", {**form(receiver, "blocks", 1), **wrong}).status == 422


def test_a_private_address_is_not_reached_unless_it_was_allowed(
    gateway: Served, dana: Person, receiver: Receiver
) -> None:
    url = receiver.url.replace("http://", "https://")
    assert dana.post("/alerts", form(receiver, "blocks", 1, url=url, private="")).status == 303
    for number in range(2):
        gateway.decide("query_db", arguments={"sql": "SELECT 1; DROP TABLE t; --"}, call_id=f"drop-{number}")
    soon(lambda: "given up" in dana.get("/alerts").body.decode())
    assert receiver.taken == []


def _states(gateway: Served) -> bytes:
    with gateway.deployment.store.reader() as reader:
        return b"".join(document.body for document in reader.documents("alert_rules"))
