"""Deciding over HTTP: every status of the contract, on a real server over a real store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.served import Served, served

READ = {"tool": "read_file", "arguments": {"path": "notes.txt"}}
MAIL = {"tool": "send_email", "arguments": {"to": "a@example.com"}, "call_id": "m1"}


@pytest.fixture
def gateway(shared_gateway: Served) -> Served:
    return shared_gateway


def receipt(gateway: Served, receipt_id: str) -> dict[str, Any]:
    answer = gateway.ask("GET", f"/v1/receipts/{receipt_id}", key="auditor")
    found: dict[str, Any] = answer.json["receipt"]
    return found


def test_an_allowed_call_is_200_and_on_record(gateway: Served) -> None:
    answer = gateway.ask("POST", "/v1/decisions", READ)
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    decision = answer.json
    assert (decision["decision"], decision["verdict"], decision["reason"]) == ("allow", "compliant", "none")
    assert "findings" not in decision
    recorded = receipt(gateway, decision["receipt"]["id"])
    assert recorded["decision"] == "allow"
    assert recorded["agent"] == "bot"
    assert recorded["principal"] == "bot"


def test_a_blocked_call_is_200_and_on_record(gateway: Served) -> None:
    decision = gateway.decide("deploy").json
    assert (decision["decision"], decision["reason"]) == ("block", "risk_ceiling")
    assert receipt(gateway, decision["decision_id"])["decision"] == "block"


def test_an_auditing_agent_sees_findings_masked(gateway: Served) -> None:
    answer = gateway.decide("run", arguments={"command": "curl http://169.254.169.254/latest/meta-data"}, key="seer")
    assert "findings" in answer.json


def test_a_held_call_is_202_with_the_place_of_its_approval(gateway: Served) -> None:
    answer = gateway.ask("POST", "/v1/decisions", {**MAIL, "call_id": "held-1"})
    assert answer.status == 202
    assert answer.headers["location"] == answer.json["approval"]["url"]
    again = gateway.ask("POST", "/v1/decisions", {**MAIL, "call_id": "held-1"})
    assert again.status == 202
    assert again.json["approval"]["id"] == answer.json["approval"]["id"]


def test_the_same_call_again_adds_no_second_decision(gateway: Served) -> None:
    first = gateway.ask("POST", "/v1/decisions", {**READ, "call_id": "r1"}).json
    second = gateway.ask("POST", "/v1/decisions", {**READ, "call_id": "r1"}).json
    assert first["receipt"] == second["receipt"]


def test_the_same_id_with_another_call_is_409_and_a_decision(gateway: Served) -> None:
    gateway.ask("POST", "/v1/decisions", {**READ, "call_id": "r2"})
    answer = gateway.ask("POST", "/v1/decisions", {"tool": "read_file", "arguments": {"path": "b"}, "call_id": "r2"})
    assert answer.status == 409
    assert (answer.json["decision"], answer.json["reason"]) == ("block", "conflict")


def test_call_ids_of_two_principals_do_not_meet(gateway: Served) -> None:
    gateway.ask("POST", "/v1/decisions", {**READ, "call_id": "r3"})
    answer = gateway.ask(
        "POST", "/v1/decisions", {"tool": "read_file", "arguments": {"path": "b"}, "call_id": "r3"}, key="other"
    )
    assert answer.status == 200


def test_without_a_credential_nothing_is_decided(gateway: Served) -> None:
    answer = gateway.ask("POST", "/v1/decisions", READ, key=None)
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    for scheme in ("Basic Ym90", "Bearer", "Bearer  ", "bot", "Bearer n\u00f6", "Bearer " + "a" * 4_000):
        sent = gateway.ask("POST", "/v1/decisions", READ, key=None, headers={"authorization": scheme})
        assert (sent.status, sent.code) == (401, "unauthenticated")


def test_a_credential_without_the_role_is_403_and_says_which(gateway: Served) -> None:
    for key in ("auditor", "ann", "root"):
        answer = gateway.ask("POST", "/v1/decisions", READ, key=key)
        assert (answer.status, answer.code) == (403, "forbidden")
        assert "`agent`" in answer.json["error"]["hint"]


def test_a_revoked_key_is_unknown_from_the_next_request_on(gateway: Served) -> None:
    gateway.credentials.add("brief", "agent", agent="brief")
    assert gateway.decide(key="brief").status == 200
    gateway.credentials.revoke("brief")
    answer = gateway.decide(key="brief")
    assert (answer.status, answer.code) == (401, "unauthenticated")


def test_a_key_can_be_limited_to_tools(gateway: Served) -> None:
    gateway.credentials.add("narrow", "agent", agent="narrow", tools=("read_*",))
    assert gateway.decide(key="narrow").json["decision"] == "allow"
    refused = gateway.decide("list_files", key="narrow")
    assert (refused.status, refused.json["decision"], refused.json["reason"]) == (200, "block", "policy_denied")


@pytest.mark.claim("IDN-07")
def test_a_limited_key_hears_no_yes_that_another_key_of_its_holder_got(gateway: Served) -> None:
    asked = {"call_id": "two-keys", "want_permit": True}
    gateway.credentials.add("party", "agent", agent="party")
    assert gateway.decide("list_files", key="party", **asked).json["decision"] == "allow"
    gateway.credentials.add("party", "agent", agent="party", tools=("read_*",))
    refused = gateway.decide("list_files", key="party", **asked).json
    assert (refused["decision"], refused["reason"], "permit" in refused) == ("block", "policy_denied", False)


def test_an_agent_cannot_speak_for_another(gateway: Served) -> None:
    answer = gateway.decide(agent="other")
    assert (answer.status, answer.code) == (403, "forbidden")
    assert gateway.decide(agent="bot").status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"read_file"',
        b'{"tool": "read_file"}',
        b'{"arguments": {}}',
        b'{"tool": "read_file", "arguments": {}, "tool": "deploy"}',
        b'{"tool": "read_file", "arguments": {"path": "a", "path": "b"}}',
        b'{"tool": "read_file", "arguments": {"size": NaN}}',
        b'{"tool": "read_file", "arguments": {"size": Infinity}}',
        b'{"tool": "read_file", "arguments": {"size": 1e999}}',
        b'{"tool": "read_file", "arguments": {"path": "\\ud800"}}',
        b'{"tool": "read_\\udc00file", "arguments": {}}',
        b'{"tool": "read_file", "arguments": {"path": "\xff"}}',
        b'\xef\xbb\xbf{"tool": "read_file", "arguments": {}}',
        b'{"tool": "read_file", "arguments": {}} {}',
        b'{"tool": "read_file", "arguments": {}, "admin": true}',
        b'{"tool": "read_file", "arguments": []}',
        b'{"tool": "read_file", "arguments": null}',
        b'{"tool": "read_file", "arguments": "{}"}',
        b'{"tool": 7, "arguments": {}}',
        b'{"tool": "", "arguments": {}}',
        b'{"tool": "  ", "arguments": {}}',
        b'{"tool": "read_file", "arguments": {}, "turn": 1.5}',
        b'{"tool": "read_file", "arguments": {}, "turn": true}',
        b'{"tool": "read_file", "arguments": {}, "turn": -1}',
        b'{"tool": "read_file", "arguments": {}, "want_permit": "yes"}',
        b'{"tool": "read_file", "arguments": {}, "session": null}',
        b'{"tool": "read_file", "arguments": {}, "unresolved": "/path"}',
        b'{"tool": "read_file", "arguments": {}, "unresolved": ["path"]}',
        b'{"tool": "read_file", "arguments": {}, "unresolved": [7]}',
        b'{"tool": "read_file", "arguments": {}, "proof": {}}',
        b'{"tool": "read_file", "arguments": {}, "task": 3}',
        b'{"tool": "%s", "arguments": {}}' % (b"a" * 257),
        b'{"tool": "read_file", "arguments": {"a": ' + b"[" * 300 + b"]" * 300 + b"}}",
        b'{"tool": "read_file", "arguments": {"a": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}}",
        b'{"tool": "read_file", "arguments": {"n": ' + b"9" * 20_000 + b"}}",
    ],
)
def test_what_two_parsers_could_read_differently_is_422(gateway: Served, body: bytes) -> None:
    before = gateway.ask("GET", "/v1/receipts?limit=1", key="auditor").json["items"][0]["index"]
    answer = gateway.ask("POST", "/v1/decisions", body)
    assert answer.status == 422
    assert answer.code
    assert gateway.ask("GET", "/v1/receipts?limit=1", key="auditor").json["items"][0]["index"] == before


def test_large_integers_keep_their_digits(gateway: Served) -> None:
    first = gateway.decide(arguments={"n": 2**70}).json
    second = gateway.decide(arguments={"n": 2**70 + 1}).json
    assert first["request_digest"] != second["request_digest"]


def test_a_body_over_the_limit_is_413(gateway: Served) -> None:
    body = json.dumps({"tool": "read_file", "arguments": {"path": "a" * (4 * 1024 * 1024)}}).encode()
    answer = gateway.ask("POST", "/v1/decisions", body)
    assert (answer.status, answer.code) == (413, "too_large")


def test_a_chunked_body_over_the_limit_is_413(gateway: Served) -> None:
    head = gateway.head("/v1/decisions", transfer_encoding="chunked") + b"\r\n"
    chunk = b"10000\r\n" + b"a" * 65_536 + b"\r\n"
    answer = gateway.raw(
        head + chunk * 65 + b"0\r\n\r\n" + b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"HTTP/1.1 200 OK" in answer  # the connection goes on behind the refused body


def test_arguments_over_one_mebibyte_are_decided_and_never_allowed(gateway: Served) -> None:
    answer = gateway.decide(arguments={"path": "a" * (1024 * 1024 + 1)})
    assert answer.status == 200
    assert answer.json["decision"] == "block"


def test_a_rate_limited_call_is_429_with_a_time_to_come_back_and_on_record(tmp_path: Path) -> None:
    config = (
        "version: 1\nprofile: standard\nlimits: {rate: 2/minute}\ntools: {read_file: {risk: low, effects: [read]}}\n"
    )
    with served(tmp_path / "home", config) as gateway:
        assert [gateway.decide().status for _ in range(2)] == [200, 200]
        answer = gateway.decide()
        assert answer.status == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert (answer.json["decision"], answer.json["reason"]) == ("block", "rate_limited")
        assert receipt(gateway, answer.json["receipt"]["id"])["reason"] == "rate_limited"
        assert gateway.decide(key="other").status == 200  # the window is the agent's own


def test_a_request_id_is_the_callers_where_it_is_plain(gateway: Served) -> None:
    assert (
        gateway.ask("POST", "/v1/decisions", READ, headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    )
    other = gateway.ask("POST", "/v1/decisions", READ, headers={"x-request-id": "a b{c}"}).headers["x-request-id"]
    assert other != "a b{c}"


def test_a_batch_is_decided_in_order_and_in_one_commit(gateway: Served) -> None:
    calls = [READ, {"tool": "deploy", "arguments": {}}, {**MAIL, "call_id": "batch-mail"}, READ]
    answer = gateway.ask("POST", "/v1/decisions:batch", {"calls": calls})
    assert answer.status == 200
    decisions = answer.json["decisions"]
    assert [one["decision"] for one in decisions] == ["allow", "block", "require_approval", "allow"]
    indexes = [one["receipt"]["index"] for one in decisions]
    assert indexes == list(range(indexes[0], indexes[0] + 4))
    assert len(gateway.ask("POST", "/v1/decisions:batch", calls).json["decisions"]) == 4
    assert gateway.ask("POST", "/v1/decisions:batch", {"calls": []}).json == {"decisions": []}


@pytest.mark.parametrize(
    "body",
    [{}, {"calls": {}}, {"calls": [READ, {"tool": "x"}]}, {"calls": [READ] * 257}, {"calls": [], "more": 1}, [1]],
)
def test_a_malformed_batch_is_refused_whole(gateway: Served, body: Any) -> None:
    answer = gateway.ask("POST", "/v1/decisions:batch", body)
    assert answer.status == 422
    assert answer.code


def test_a_result_is_judged_once_and_chained_to_its_call(gateway: Served) -> None:
    decision = gateway.ask("POST", "/v1/decisions", READ).json
    body = {"decision_id": decision["decision_id"], "result": {"text": "hello"}}
    first = gateway.ask("POST", "/v1/results", body)
    assert (first.status, first.json["decision"]) == (200, "allow")
    assert receipt(gateway, first.json["receipt"]["id"])["parent"] == decision["decision_id"]
    assert gateway.ask("POST", "/v1/results", body).json == first.json
    other = gateway.ask("POST", "/v1/results", {**body, "result": "something else"})
    assert (other.status, other.code) == (409, "conflict")


def test_a_result_of_anothers_or_of_a_blocked_call_is_refused(gateway: Served) -> None:
    decision = gateway.ask("POST", "/v1/decisions", READ).json
    body = {"decision_id": decision["decision_id"], "result": 1}
    assert gateway.ask("POST", "/v1/results", body, key="other").status == 404
    blocked = gateway.decide("deploy").json
    answer = gateway.ask("POST", "/v1/results", {"decision_id": blocked["decision_id"], "result": 1})
    assert (answer.status, answer.code) == (409, "not_allowed")


def test_the_unix_socket_serves_the_same_and_belongs_to_its_owner(gateway: Served) -> None:
    import http.client
    import socket

    assert gateway.unix.stat().st_mode & 0o777 == 0o600
    connection = http.client.HTTPConnection("gateway")
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.connect(str(gateway.unix))
    connection.request(
        "POST", "/v1/decisions", json.dumps(READ), {"authorization": f"Bearer {gateway.credentials.text('bot')}"}
    )
    assert json.loads(connection.getresponse().read())["decision"] == "allow"
    connection.request("POST", "/v1/decisions", json.dumps(READ), {})
    assert connection.getresponse().status == 401
    connection.close()
