"""Word of held calls: signed, without values, tried again, and kept where nobody took it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aegis.errors import InvalidCall, StoreConflict
from aegis.outbound import worker
from aegis.outbound.send import DeliveryTarget, Message, request_of, verify_webhook
from support.deployments import deployment
from support.receiver import receiving, until
from support.served import Served, served

MAIL = {"to": "secret-recipient@example.com", "body": "the launch code is 4711"}
SECRET = "a-shared-secret"


def config(*notify: str, more: str = "") -> str:
    return (
        "version: 1\nprofile: standard\nlimits: {rate: unlimited}\n"
        f"approvals:\n  link: https://aegis.example\n  notify: [{', '.join(notify)}]\n{more}"
        "tools: {send_email: {risk: high, irreversible: true, effects: [external_send]}}\n"
    )


def webhook(port: int, path: str = "/hook", **more: str) -> str:
    members = {"private": f"['127.0.0.1:{port}']", **more}
    text = ", ".join(f"{name}: {value}" for name, value in members.items())
    return f"{{kind: webhook, url: 'http://127.0.0.1:{port}{path}', secret: '${{env:HOOK_SECRET}}', {text}}}"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)


def hold(gateway: Served, call_id: str = "m-1") -> str:
    answer = gateway.decide("send_email", arguments=MAIL, call_id=call_id)
    assert answer.status == 202
    approval: str = answer.json["approval"]["id"]
    return approval


def dead(gateway: Served) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = gateway.ask("GET", "/v1/deliveries", key="root").json["items"]
    return items


def test_a_webhook_is_signed_and_carries_no_value(tmp_path: Path) -> None:
    with receiving() as receiver, served(tmp_path / "home", config(webhook(receiver.port))) as gateway:
        approval = hold(gateway)
        (first,) = receiver.wait(1)
        body = verify_webhook(SECRET, first.headers, first.body)
        assert body["type"] == "approval.pending"
        assert (body["data"]["id"], body["data"]["tool"], body["data"]["agent"]) == (approval, "send_email", "bot")
        assert "arguments" not in body["data"]
        assert b"secret-recipient" not in first.body and b"4711" not in first.body
        gateway.ask("POST", f"/v1/approvals/{approval}", {"decision": "deny"}, key="ann")
        second = receiver.wait(2)[1]
        assert verify_webhook(SECRET, second.headers, second.body)["type"] == "approval.denied"
        assert first.headers["webhook-id"] != second.headers["webhook-id"]
        until(lambda: gateway.ask("GET", "/v1/deliveries?state=due", key="root").json["items"] == [])


def test_a_receiver_notices_what_was_changed_is_late_or_signed_by_another(tmp_path: Path) -> None:
    message = Message(
        id="0" * 32, target=DeliveryTarget(kind="webhook", url="https://h.example/x", secret="${env:HOOK_SECRET}"),
        event="approval.pending", text="t", link="", data={"a": 1}, created_at=0, due_at=0,
    )  # fmt: skip
    request = request_of(message, 1_000_000_000)
    assert verify_webhook(SECRET, request.headers, request.body, now=1_000)["data"] == {"a": 1}
    changes: list[dict[str, Any]] = [
        {"secret": "another"},
        {"body": request.body + b" "},
        {"now": 1_301.0},
        {"now": 699.0},
        {"headers": {**request.headers, "webhook-id": "1" * 32}},
        {"headers": {}},
    ]
    for changed in changes:
        given: dict[str, Any] = {"secret": SECRET, "headers": request.headers, "body": request.body, "now": 1_000.0}
        given |= changed
        with pytest.raises(InvalidCall) as refusal:
            verify_webhook(given["secret"], given["headers"], given["body"], now=given["now"])
        assert refusal.value.status == 401


def test_masked_arguments_are_sent_where_the_operator_asks_for_them(tmp_path: Path) -> None:
    with (
        receiving() as receiver,
        served(tmp_path / "home", config(webhook(receiver.port, arguments="true"))) as gateway,
    ):
        hold(gateway)
        data = json.loads(receiver.wait(1)[0].body)["data"]
        assert data["arguments"] == {"to": "se****om", "body": "th****11"}


def test_a_message_for_slack_links_to_a_page_and_holds_no_markup_of_others(tmp_path: Path) -> None:
    text = "{kind: slack, url: '${env:SLACK}', private: [127.0.0.1]}"
    with receiving() as receiver, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLACK", f"http://127.0.0.1:{receiver.port}/services/T/B/x")
        with served(tmp_path / "home", config(text)) as gateway:
            gateway.credentials.add("odd", "agent", agent="<!channel> & co")
            answer = gateway.decide("send_email", arguments=MAIL, call_id="s-1", key="odd")
            (got,) = receiver.wait(1)
            body = json.loads(got.body)
            assert "&lt;!channel&gt; &amp; co" in body["text"] and "<!channel>" not in got.body.decode()
            link = f"https://aegis.example/approvals/{answer.json['approval']['id']}"
            assert body["blocks"][1]["elements"][0]["url"] == link
            assert b"4711" not in got.body
            assert gateway.ask("GET", f"/v1/approvals/{answer.json['approval']['id']}", key=None).status == 401


def test_what_fails_for_now_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BACK_OFF_S", (0, 0, 0, 0))
    with receiving(500, 429, 200) as receiver, served(tmp_path / "home", config(webhook(receiver.port))) as gateway:
        hold(gateway)
        got = receiver.wait(3)
        assert len({one.headers["webhook-id"] for one in got}) == 1  # its receiver knows a repetition
        until(lambda: gateway.ask("GET", "/v1/deliveries?state=due", key="root").json["items"] == [])
        assert dead(gateway) == []


def test_what_nobody_takes_is_kept_and_can_be_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BACK_OFF_S", (0, 0))
    with (
        receiving(500, 500, 500, 200) as receiver,
        served(tmp_path / "home", config(webhook(receiver.port))) as gateway,
    ):
        hold(gateway)
        until(lambda: len(dead(gateway)) == 1)
        (kept,) = dead(gateway)
        assert (kept["attempts"], kept["error"]) == (3, "the receiver answered with status 500")
        assert kept["target"] == f"webhook at `127.0.0.1:{receiver.port}`"
        assert gateway.ask("GET", "/v1/deliveries", key="ann").status == 403
        again = gateway.ask("POST", f"/v1/deliveries/{kept['id']}/retry", key="root")
        assert (again.status, again.json["state"]) == (200, "due")
        receiver.wait(4)
        until(lambda: dead(gateway) == [])
        # It is gone once the receiver's answer is on record, which is after the receiver gave it.
        until(lambda: gateway.ask("POST", f"/v1/deliveries/{kept['id']}/retry", key="root").status == 404)


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 410])
def test_a_redirect_is_not_followed_and_a_refusal_is_final(tmp_path: Path, status: int) -> None:
    with (
        receiving() as other,
        receiving(status, location=f"http://127.0.0.1:{other.port}/elsewhere") as receiver,
        served(tmp_path / "home", config(webhook(receiver.port))) as gateway,
    ):
        hold(gateway)
        until(lambda: len(dead(gateway)) == 1)
        assert dead(gateway)[0]["error"] == f"the receiver answered with status {status}"
        assert (len(receiver.got), other.got) == (1, [])


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/", "https://127.0.0.1:{port}/", "https://localhost:{port}/"])
def test_a_private_address_is_refused_unless_it_is_named(tmp_path: Path, url: str) -> None:
    with receiving() as receiver:
        text = f"{{kind: webhook, url: '{url.format(port=receiver.port)}', secret: '${{env:HOOK_SECRET}}'}}"
        with served(tmp_path / "home", config(text)) as gateway:
            hold(gateway)
            until(lambda: len(dead(gateway)) == 1)
            assert receiver.got == []


def test_a_message_survives_the_process_that_should_have_sent_it(tmp_path: Path) -> None:
    with receiving() as receiver:
        text = config(webhook(receiver.port))
        place = deployment(tmp_path / "home", text)
        place.deliveries.close()  # as if it had been killed before it came to sending
        from aegis.core.call import ToolCall

        assert place.gate.decide(ToolCall(tool="send_email", arguments=MAIL, call_id="k-1")).approval is not None
        place.close()
        assert receiver.got == []
        with served(tmp_path / "home", text):
            receiver.wait(1)


def test_an_embedded_gate_sends_as_well(tmp_path: Path) -> None:
    with receiving() as receiver:
        place = deployment(tmp_path / "home", config(webhook(receiver.port)))
        from aegis.core.call import ToolCall

        place.gate.decide(ToolCall(tool="send_email", arguments=MAIL, call_id="e-1"))
        (message,) = receiver.wait(1)
        place.close()
    assert json.loads(message.body)["type"] == "approval.pending"


def test_one_process_sends_a_message_and_a_dead_one_holds_it_up_for_a_lease_alone(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home")
    message = Message(
        id="1" * 32, target=DeliveryTarget(kind="slack", url="https://h.example/x"), event="e", text="t", link="",
        data={},
        created_at=0, due_at=0,
    )  # fmt: skip
    with place.store.transaction() as transaction:
        worker.put(transaction, message)
    with place.store.transaction() as transaction:
        claimed = worker.claim(transaction, message, 10)
    with pytest.raises(StoreConflict), place.store.transaction() as transaction:
        worker.claim(transaction, message, 11)
    with place.store.reader() as reader:
        assert list(worker.due(reader, 11)) == []
        over = claimed.leased_until
        assert [one.id for one in worker.due(reader, over)] == [message.id]
    place.close()
