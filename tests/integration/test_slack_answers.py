"""Answering held calls in Slack: what its app signed, by a mapped approver, about exactly what was shown, once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest

from aegis.bootstrap.credentials import alter_account
from aegis.outbound.slack import MOST_SHOWN, signature_of, slack_body
from support.people import person, state_of
from support.receiver import Receiver, receiving, until
from support.served import Answer, Served, served

SECRET = "the-apps-signing-secret"


@dataclass(frozen=True, kw_only=True)
class Slack:
    """A workspace: it gets messages, and sends what people press, signed as Slack signs."""

    receiver: Receiver
    gateway: Served

    def message(self, tool: str = "send_email", **arguments: str) -> dict[str, Any]:
        """The message about one more held call."""
        held = self.gateway.decide(tool, arguments={"to": "ann@example.com", **arguments})
        assert held.status == 202, held.body
        mark = f"{held.json['approval']['id']}.".encode()
        until(lambda: any(mark in one.body for one in self.receiver.got))
        shown: dict[str, Any] = json.loads(next(one.body for one in self.receiver.got if mark in one.body))
        return shown

    def press(
        self, button: dict[str, Any], *, user: str = "U-ANN", secret: str = SECRET, age: int = 0, body: bytes = b""
    ) -> Answer:
        """Send one press of a button."""
        action = {"action_id": button["action_id"], "value": button["value"], "type": "button"}
        payload = {"type": "block_actions", "user": {"id": user}, "actions": [action]}
        sent = body or urlencode({"payload": json.dumps(payload)}).encode()
        timestamp = str(int(time.time()) - age)
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "x-slack-request-timestamp": timestamp,
            "x-slack-signature": signature_of(secret, timestamp, sent),
        }
        return self.gateway.ask("POST", "/v1/slack/interactions", sent, key=None, headers=headers)


def buttons(message: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The buttons of a message that can be pressed, by their labels."""
    elements = [one for block in message["blocks"] if block["type"] == "actions" for one in block["elements"]]
    return {one["text"]["text"]: one for one in elements if "value" in one}


def state(slack: Slack, button: dict[str, Any]) -> str:
    approval = button["value"].partition(".")[0]
    found: str = slack.gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json["state"]
    return found


@pytest.fixture(scope="module")
def slack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slack]:
    with pytest.MonkeyPatch.context() as patch, receiving() as receiver:
        patch.setenv("SLACK_SECRET", SECRET)
        notify = (
            f"{{kind: slack, url: 'http://127.0.0.1:{receiver.port}/hook', private: ['127.0.0.1:{receiver.port}'],"
            " secret: '${env:SLACK_SECRET}', values: true,"
            " people: {U-ANN: anna, U-BO: bob, U-EVE: eve, U-GONE: gone}}"
        )
        config = (
            "version: 1\nprofile: standard\nlimits: {rate: unlimited}\n"
            f"approvals:\n  link: https://aegis.example\n  notify: [{notify}]\n"
            "tools: {send_email: {risk: high, irreversible: true, effects: [external_send]}}\n"
        )
        with served(tmp_path_factory.mktemp("slack") / "home", config) as gateway:
            for name in ("anna", "bob", "gone"):
                person(gateway, name, "approver")
            person(gateway, "eve", "auditor")
            alter_account(state_of(gateway), "gone", "disable", by="operator:test", to="disabled")
            yield Slack(receiver=receiver, gateway=gateway)


def test_a_yes_in_slack_lets_the_call_run_and_the_log_names_the_account(slack: Slack) -> None:
    pressed = buttons(slack.message())
    assert set(pressed) == {"Approve", "Deny"}
    assert slack.press(pressed["Approve"]).json == {"status": "answered"}
    assert state(slack, pressed["Approve"]) == "approved"
    recorded = slack.gateway.ask("GET", "/v1/receipts?kind=approval&limit=1", key="auditor").json["items"][0]
    assert (recorded["action"], recorded["principal"]) == ("approved", "anna")


def test_a_no_in_slack_refuses_the_call(slack: Slack) -> None:
    pressed = buttons(slack.message())
    assert slack.press(pressed["Deny"]).status == 200
    assert state(slack, pressed["Deny"]) == "denied"


def test_what_another_secret_signed_or_nobody_did_is_refused(slack: Slack) -> None:
    pressed = buttons(slack.message())["Approve"]
    assert slack.press(pressed, secret="another-secret").status == 401
    assert slack.gateway.ask("POST", "/v1/slack/interactions", b"payload={}", key="ann").status in (401, 415, 422)
    assert state(slack, pressed) == "pending"


def test_what_is_recorded_and_sent_later_is_refused(slack: Slack) -> None:
    pressed = buttons(slack.message())["Approve"]
    assert slack.press(pressed, age=301).status == 401
    assert slack.press(pressed, age=-3_600).status == 401
    assert state(slack, pressed) == "pending"


def test_a_press_that_is_sent_again_counts_once(slack: Slack) -> None:
    pressed = buttons(slack.message())
    assert slack.press(pressed["Deny"]).status == 200
    assert slack.press(pressed["Deny"]).status == 409
    assert slack.press(pressed["Approve"], user="U-BO").status == 409
    assert state(slack, pressed["Deny"]) == "denied"


@pytest.mark.parametrize("user", ["U-NOBODY", "U-EVE", "U-GONE", "ann", ""])
def test_who_is_not_mapped_to_an_active_approver_is_refused(slack: Slack, user: str) -> None:
    pressed = buttons(slack.message())["Approve"]
    assert slack.press(pressed, user=user).status == 403
    assert state(slack, pressed) == "pending"


def test_a_button_is_bound_to_what_it_showed(slack: Slack) -> None:
    first, second = buttons(slack.message())["Approve"], buttons(slack.message(subject="other"))["Approve"]
    approval, _, _ = first["value"].partition(".")
    moved = {**first, "value": f"{approval}.{second['value'].partition('.')[2]}"}
    assert slack.press(moved).status == 409
    assert slack.press({**first, "value": approval}).status == 409
    assert slack.press({**first, "value": f"{'0' * 32}.x"}).status == 404
    assert state(slack, first) == "pending"


def test_no_yes_is_offered_where_the_arguments_are_not_shown_whole(slack: Slack) -> None:
    message = slack.message(body="word " * MOST_SHOWN)
    assert set(buttons(message)) == {"Deny"}


def test_masked_arguments_are_not_enough_for_a_yes() -> None:
    data = {"id": "a" * 32, "bound": ["sha256:1", "sha256:2"], "arguments": {"to": "an****om"}}
    assert set(buttons(slack_body("a call waits", "", data, SECRET))) == {"Deny"}
    assert set(buttons(slack_body("a call waits", "", {**data, "values": {}}, SECRET))) == {"Approve", "Deny"}
    assert set(buttons(slack_body("a call waits", "", data, ""))) == set()


def test_values_cannot_speak_as_slacks_markup(slack: Slack) -> None:
    message = slack.message(body="<!channel> *urgent* <https://evil.example|click>")
    texts = [block["text"] for block in message["blocks"] if block["type"] == "section"]
    assert [text["type"] for text in texts if "<!channel>" in text["text"]] == ["plain_text"]


@pytest.mark.parametrize(
    "body", [b"payload=%7B%7D", b"x", b"payload=1&payload=2", b"payload=%5B%5D", b"payload=" + b"%ff" * 10]
)
def test_what_is_no_press_of_one_button_is_refused(slack: Slack, body: bytes) -> None:
    assert slack.press({"action_id": "x", "value": "y"}, body=body).status == 422
    assert slack.press({"action_id": "other_app", "value": "y"}).status == 422
