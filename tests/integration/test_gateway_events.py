"""The event stream: live, resumed from the log, bounded, and ended by a drain."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.served import Served, served


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home") as running:
        yield running


@dataclass(frozen=True)
class Seen:
    """One event as a client reads it."""

    index: int
    name: str
    data: Any


class Stream:
    """A client of the stream."""

    def __init__(self, response: http.client.HTTPResponse):
        self.response = response

    def events(self, count: int) -> list[Seen]:
        """The next `count` events."""
        seen: list[Seen] = []
        members: dict[str, str] = {}
        while len(seen) < count:
            line = self.response.readline()
            assert line, "the stream ended"
            text = line.decode().rstrip("\n")
            if not text:
                if "data" in members:
                    seen.append(Seen(int(members["id"]), members["event"], json.loads(members["data"])))
                members = {}
            elif not text.startswith(":"):
                name, _, value = text.partition(": ")
                members[name] = value
        return seen


@contextmanager
def watch(gateway: Served, *, last: int | None = None, key: str = "auditor", query: str = "") -> Iterator[Stream]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    headers = {"authorization": f"Bearer {gateway.credentials.text(key)}"}
    if last is not None:
        headers["last-event-id"] = str(last)
    connection.request("GET", f"/v1/events{query}", headers=headers)
    response = connection.getresponse()
    assert response.status == 200
    assert response.getheader("content-type") == "text/event-stream; charset=utf-8"
    assert response.readline().startswith(b"retry:")
    try:
        yield Stream(response)
    finally:
        connection.close()


def test_what_is_recorded_arrives_with_its_index(gateway: Served) -> None:
    with watch(gateway) as stream:
        allowed = gateway.decide(session="s").json
        blocked = gateway.decide("deploy").json
        first, second = stream.events(2)
    assert (first.name, first.index, first.data["decision"]) == ("decision", allowed["receipt"]["index"], "allow")
    assert (second.name, second.index, second.data["reason"]) == (
        "decision",
        blocked["receipt"]["index"],
        "risk_ceiling",
    )
    assert first.data["session"] == "s"


def test_an_event_holds_no_argument_value(gateway: Served) -> None:
    with watch(gateway) as stream:
        gateway.decide("send_email", arguments={"to": "zebra@example.com"}, call_id="m")
        assert "zebra" not in json.dumps([event.data for event in stream.events(2)])


def test_an_approval_is_followed_through_its_states(gateway: Served) -> None:
    with watch(gateway, key="ann") as stream:
        held = gateway.decide("send_email", arguments={"to": "a@example.com"}, call_id="m").json
        path = f"/v1/approvals/{held['approval']['id']}"
        gateway.ask("POST", path, {"decision": "approve"}, key="ann")
        gateway.decide("send_email", arguments={"to": "a@example.com"}, call_id="m")
        events = stream.events(4)
    assert [event.name for event in events] == ["decision", "approval", "approval", "approval"]
    assert [event.data["state"] for event in events[1:]] == ["pending", "approved", "redeemed"]
    assert events[0].index == events[1].index
    assert events[1].data["id"] == held["approval"]["id"]
    assert events[1].data["tool"] == "send_email"


def test_agents_and_configurations_are_events(gateway: Served) -> None:
    with watch(gateway) as stream:
        gateway.ask("POST", "/v1/agents/bot/revoke", key="root")
        text = b"version: 1\nlimits: {rate: unlimited}\n"
        assert gateway.ask("PUT", "/v1/config", text, key="root").status == 200
        events = stream.events(2)
    assert [event.name for event in events] == ["agent", "config"]
    assert events[0].data["action"] == "revoke"


def test_a_client_that_comes_back_misses_nothing(gateway: Served) -> None:
    indexes = [gateway.decide(call_id=str(number)).json["receipt"]["index"] for number in range(20)]
    with watch(gateway, last=indexes[4]) as stream:
        late = gateway.decide(call_id="late").json["receipt"]["index"]
        seen = [event.index for event in stream.events(16)]
    assert seen == [*indexes[5:], late]
    with watch(gateway, query=f"?after={indexes[17]}") as stream:
        assert [event.index for event in stream.events(3)] == [*indexes[18:], late]


def test_many_events_at_once_come_in_order_and_whole(gateway: Served) -> None:
    with watch(gateway) as stream:
        for _ in range(4):
            calls = [{"tool": "read_file", "arguments": {}}] * 200
            assert gateway.ask("POST", "/v1/decisions:batch", {"calls": calls}).status == 200
        seen = [event.index for event in stream.events(800)]
    assert seen == list(range(seen[0], seen[0] + 800))


def test_a_bad_id_and_a_wrong_role_are_refused(gateway: Served) -> None:
    for value in ("x", "-1", "1" * 17, "1.0"):
        answer = gateway.ask("GET", "/v1/events", key="auditor", headers={"last-event-id": value})
        assert answer.status == 422
    for key in ("bot", "root"):
        assert gateway.ask("GET", "/v1/events", key=key).status == 403
    assert gateway.ask("GET", "/v1/events", key=None).status == 401


def test_a_client_that_goes_away_is_forgotten(gateway: Served) -> None:
    with watch(gateway):
        assert gateway.app.services.feed.subscribers == 1
    for _ in range(200):
        gateway.decide()
        if gateway.app.services.feed.subscribers == 0:
            break
        time.sleep(0.05)
    assert gateway.app.services.feed.subscribers == 0


def test_a_drain_ends_the_stream_in_order(gateway: Served) -> None:
    with watch(gateway) as stream:
        gateway.decide()
        stream.events(1)
        gateway.server.stop()
        rest = stream.response.read()
    assert b"the gateway goes down" in rest
    gateway.thread.join(60)
    assert not gateway.thread.is_alive()


@pytest.mark.parametrize("query", ["", "?after=0"])
def test_a_stream_ends_with_the_key_that_opened_it(gateway: Served, query: str) -> None:
    with watch(gateway, query=query) as stream:
        gateway.decide()
        stream.events(1)
        gateway.credentials.revoke("auditor")
        recorded = gateway.decide().json["decision_id"]
        assert recorded not in stream.response.read().decode()
