"""What the user says in a session: recorded once, on the host's credential, and found again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import aegis
from aegis.core.decision import ParentSession
from aegis.errors import InvalidCall
from aegis.sdk.client import Client
from aegis.sdk.runtime import RuntimeSettings, open_runtime, replace_runtime
from support.deployments import deployment
from support.served import Served, served


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("gateway") / "home") as running:
        yield running


def say(gateway: Served, session: str, text: str, *, key: str = "bot", **members: object) -> tuple[int, Any]:
    answer = gateway.ask("POST", f"/v1/sessions/{session}/turns", {"text": text, **members}, key=key)
    return answer.status, answer.json


def test_a_turn_opens_its_session_and_the_same_words_are_found(gateway: Served) -> None:
    status, first = say(gateway, "said", "pay the rent")
    assert (status, first["turn"], first["session"]) == (201, 1, "said")
    assert say(gateway, "said", "pay the rent", turn=1) == (200, first)
    assert say(gateway, "said", "pay twice", turn=1)[0] == 409
    opened = gateway.ask("POST", "/v1/sessions", {"session": "said", "task": "pay the rent"})
    assert (opened.status, opened.json["receipt"]) == (200, first["receipt"])
    status, second = say(gateway, "said", "and the phone bill")
    assert (status, second["turn"]) == (201, 2)
    assert say(gateway, "said", "and the phone bill", turn=2) == (200, second)
    assert gateway.ask("POST", "/v1/sessions", {"session": "said", "task": "pay the rent"}).status == 200
    assert gateway.ask("POST", "/v1/sessions", {"session": "said", "task": "pay twice"}).status == 409
    trace = gateway.ask("GET", "/v1/sessions/said", key="auditor").json["items"]
    assert [(one["kind"], one["action"]) for one in trace] == [("session", "turn"), ("session", "open")]
    assert trace[0]["parent"] == first["receipt"]["id"]
    assert "phone bill" not in str(trace)


def test_the_task_of_an_opening_is_turn_one(gateway: Served) -> None:
    opening = {"session": "begun", "task": "tidy up", "turns": ["the garage", "and the shed"]}
    opened = gateway.ask("POST", "/v1/sessions", opening)
    assert opened.status == 201
    assert say(gateway, "begun", "tidy up", turn=1)[0] == 200
    assert say(gateway, "begun", "the garage", turn=2)[0] == 200
    assert say(gateway, "begun", "and the shed", turn=3)[0] == 200
    assert gateway.ask("POST", "/v1/sessions", opening).status == 200
    assert gateway.ask("POST", "/v1/sessions", {**opening, "turns": ["the house"]}).status == 409
    assert say(gateway, "begun", "done?")[1]["turn"] == 4
    assert say(gateway, "later", "third", turn=3)[0] == 201  # a host that numbers may begin anywhere
    assert say(gateway, "later", "next")[1]["turn"] == 4


def test_turns_are_bounded(gateway: Served) -> None:
    assert say(gateway, "long", "x" * 65_536)[0] == 201
    assert say(gateway, "long", "x" * 65_537)[0] == 413
    assert say(gateway, "long", "é" * 32_769)[0] == 413
    assert say(gateway, "long", "look", documents=["x" * 600_000, "y" * 500_000])[0] == 413
    assert say(gateway, "long", "look", documents=["x" * 600_000])[0] == 201
    for body in ({}, {"text": 1}, {"text": "a", "turn": 0}, {"text": "a", "other": 1}, {"text": "a", "documents": "b"}):
        assert gateway.ask("POST", "/v1/sessions/long/turns", body).status == 422


def test_only_the_host_speaks_for_a_user_and_only_in_its_own_session(gateway: Served) -> None:
    assert say(gateway, "own", "mine")[0] == 201
    for key in ("ann", "auditor", "root"):
        assert say(gateway, "own", "mine", key=key)[0] == 403
    assert say(gateway, "own", "theirs", key="other", turn=1)[0] == 201  # a session of its own, by the same name


def test_a_session_is_opened_from_one_of_the_same_principal(gateway: Served) -> None:
    assert say(gateway, "above", "find a hotel")[0] == 201
    opening = {"session": "below", "task": "look at hotels", "parent": {"session": "above"}, "owner": "ada"}
    assert gateway.ask("POST", "/v1/sessions", opening).status == 201
    assert gateway.ask("POST", "/v1/sessions", opening).status == 200
    assert gateway.ask("POST", "/v1/sessions", {**opening, "parent": {"session": "said"}}).status == 409
    unnamed = {name: value for name, value in opening.items() if name != "owner"}
    assert gateway.ask("POST", "/v1/sessions", unnamed).status == 200  # who asks again need not say for whom
    assert gateway.ask("POST", "/v1/sessions", {**opening, "owner": "eve"}).status == 409
    for parent in ({"session": "nowhere"}, {"session": "above", "call_id": "none"}):
        answer = gateway.ask("POST", "/v1/sessions", {"session": "lost", "parent": parent})
        assert (answer.status, answer.code) == (403, "forbidden")
    assert (
        gateway.ask("POST", "/v1/sessions", {"session": "lost", "parent": {"session": "above"}}, key="other").status
        == 403
    )


def test_every_way_in_says_the_same(gateway: Served, tmp_path: Path) -> None:
    client = Client(f"http://127.0.0.1:{gateway.port}", gateway.credentials.text("bot"))
    opened = deployment(tmp_path / "home")
    try:
        for host in (client, opened.gate):
            assert host.open_session("ways/1", task="write to ada", turns=["today"], owner="bo").fresh
            assert not host.add_turn("ways/1", "today", turn=2).fresh
            said = asyncio.run(host.aadd_turn("ways/1", "or tomorrow", documents=["a pasted page"]))
            assert (said.turn, said.fresh) == (3, True)
            parent = ParentSession(session="ways/1")
            assert asyncio.run(host.aopen_session("ways/2", task="do", parent=parent)).fresh
            with pytest.raises(InvalidCall) as refused:
                host.add_turn("ways/1", "never", turn=3)
            assert (refused.value.code, refused.value.status) == ("conflict", 409)
    finally:
        client.close()
        opened.close()


def test_a_session_block_takes_turns(tmp_path: Path) -> None:
    replace_runtime(open_runtime(RuntimeSettings(home=tmp_path / "home")))
    try:
        with aegis.session("chat", task="book a table") as session:
            assert session.turn("for four").turn == 2
            assert asyncio.run(session.aturn("at eight", documents=["the menu"])).turn == 3
            assert not session.turn("for four", turn=2).fresh
        with aegis.session("helper", task="call them", parent="chat", owner="ada", turns=["now"]) as below:
            assert below.turn("please").turn == 3
    finally:
        replace_runtime(None)


def test_a_session_says_what_it_read_and_did(gateway: Served) -> None:
    assert gateway.ask("POST", "/v1/sessions", {"session": "seen", "task": "read my mail"}).status == 201
    call = {"tool": "read_inbox", "arguments": {}, "session": "seen", "call_id": "c1"}
    allowed = gateway.ask("POST", "/v1/decisions", call).json
    gateway.ask("POST", "/v1/results", {"decision_id": allowed["decision_id"], "result": "a letter from a stranger"})
    blocked = {"tool": "run_shell", "arguments": {"command": "rm -rf /"}, "session": "seen"}
    assert gateway.ask("POST", "/v1/decisions", blocked).json["decision"] == "block"
    found = gateway.ask("GET", "/v1/sessions/seen", key="auditor").json
    assert (found["principal"], found["task"], found["turns"], found["untrusted"]) == ("bot", True, 1, True)
    assert (found["labels"], found["sources"], found["tools"]) == (["internal"], ["read_inbox"], ["read_inbox"])
    assert (found["calls"], found["denials"], len(found["items"])) == (1, 1, 4)
    assert found["effects"] == ["read"]


def test_two_sessions_of_one_name_are_told_apart_by_their_principals(gateway: Served) -> None:
    assert say(gateway, "twice", "mine")[0] == 201
    assert gateway.ask("GET", "/v1/sessions/twice", key="auditor").json["principal"] == "bot"
    assert say(gateway, "twice", "theirs", key="other")[0] == 201
    both = gateway.ask("GET", "/v1/sessions/twice", key="auditor")
    assert both.status == 409
    assert "`bot`, `other`" in both.json["error"]["message"]
    one = gateway.ask("GET", "/v1/sessions/twice?principal=other", key="auditor").json
    assert (one["principal"], one["turns"], len(one["items"])) == ("other", 1, 1)
    assert gateway.ask("GET", "/v1/sessions/never", key="auditor").status == 404


def test_a_host_ends_its_own_session_and_sees_that_it_has_ended(gateway: Served) -> None:
    client = aegis.Client(f"http://127.0.0.1:{gateway.port}", api_key=gateway.credentials.text("bot"))
    assert say(gateway, "over", "mine")[0] == 201
    call = {"tool": "read_inbox", "arguments": {}, "session": "over", "call_id": "c1"}
    assert gateway.ask("POST", "/v1/decisions", call).json["decision"] == "allow"
    assert gateway.ask("POST", "/v1/sessions/over/end", key="other").status == 404
    ended = client.end_session("over")
    assert (ended.fresh, ended.session) == (True, "over")
    assert client.end_session("over") == structs.replace(ended, fresh=False)
    assert say(gateway, "over", "more")[1]["error"]["code"] == "session_ended"
    found = gateway.ask("GET", "/v1/sessions/over", key="auditor").json
    assert found["ended"] is True
    assert [one["execution"] for one in found["items"] if one["kind"] == "result"] == ["unknown"]
    assert gateway.ask("POST", "/v1/decisions", {**call, "call_id": "c2"}).json["reason"] == "revoked"
