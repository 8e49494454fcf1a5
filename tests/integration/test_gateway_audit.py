"""Reading the log over HTTP: search, detail, sessions, proofs, export, metrics, and who may."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from aegis.core.canonical import canonical_record
from aegis.log.checkpoint import open_checkpoint, parse_checkpoint
from aegis.log.merkle import leaf_hash, verify_consistency, verify_inclusion
from support.served import Served, served

SECRET = "zebra-crossing-at-noon"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("gateway") / "home") as running:
        for number in range(300):
            calls = [{"tool": "read_file", "arguments": {"path": f"{number}"}, "session": f"bulk-{number % 3}"}]
            assert running.ask("POST", "/v1/decisions:batch", {"calls": calls}).status == 200
        yield running


def get(gateway: Served, path: str, key: str = "auditor") -> Any:
    answer = gateway.ask("GET", path, key=key)
    assert answer.status == 200, answer.body
    return answer.json


def test_receipts_are_found_by_every_filter_newest_first(gateway: Served) -> None:
    blocked = gateway.decide("deploy", call_id="filter-1", session="filtered", key="other").json
    for query in ("tool=deploy", "decision=block", "reason=risk_ceiling", "agent=other", "principal=other"):
        items = get(gateway, f"/v1/receipts?{query}&limit=1")["items"]
        assert items[0]["receipt_id"] == blocked["receipt"]["id"]
    items = get(gateway, "/v1/receipts?session=filtered&call_id=filter-1&kind=decision")["items"]
    assert [one["receipt_id"] for one in items] == [blocked["receipt"]["id"]]
    time = items[0]["time"].replace("+", "%2B")
    assert get(gateway, f"/v1/receipts?since={time}&session=filtered")["items"] == items
    assert get(gateway, f"/v1/receipts?until={time}&session=filtered")["items"] == items
    assert get(gateway, "/v1/receipts?until=2020-01-01T00:00:00Z")["items"] == []
    assert get(gateway, "/v1/receipts?since=2120-01-01T00:00:00Z")["items"] == []


def test_pages_hold_every_receipt_once(gateway: Served) -> None:
    seen: list[int] = []
    cursor = ""
    while True:
        page = get(gateway, f"/v1/receipts?session=bulk-0&limit=33{cursor}")
        seen += [one["index"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert len(seen) == 100
    assert seen == sorted(set(seen), reverse=True)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=1001", "limit=x", "limit=1&limit=2", "kind=secret", "decision=yes", "since=yesterday",
        "since=2026-01-01T00:00:00", "cursor=%00", "cursor=AAAA", "unknown=1", "tool=", "tool=%ff", "tool=%20",
        "reveal=true",
    ],
)  # fmt: skip
def test_a_malformed_query_is_422(gateway: Served, query: str) -> None:
    answer = gateway.ask("GET", f"/v1/receipts?{query}", key="auditor")
    assert answer.status == 422
    assert answer.code


def test_a_payload_is_masked_and_revealing_it_is_recorded(gateway: Served) -> None:
    decision = gateway.decide(arguments={"path": SECRET, "size": 123_456}).json
    path = f"/v1/receipts/{decision['decision_id']}"
    masked = get(gateway, path)
    assert (masked["revealed"], masked["receipt"]["receipt_id"]) == (False, decision["decision_id"])
    assert SECRET not in json.dumps(masked)
    assert "123456" not in json.dumps(masked)
    assert decision["request_digest"] not in json.dumps(masked)
    assert masked["payload"]["arguments"].keys() == {"path", "size"}
    assert get(gateway, "/v1/receipts?kind=access")["items"] == []
    revealed = get(gateway, f"{path}?reveal=true")
    assert revealed["payload"]["arguments"] == {"path": SECRET, "size": 123_456}
    access = get(gateway, "/v1/receipts?kind=access")["items"]
    assert [(one["parent"], one["principal"], one["action"]) for one in access] == [
        (decision["decision_id"], "auditor", "reveal")
    ]


def test_the_leaf_of_a_receipt_is_the_hash_of_its_canonical_bytes(gateway: Served) -> None:
    decision = gateway.decide().json
    detail = get(gateway, f"/v1/receipts/{decision['decision_id']}")
    assert leaf_hash(canonical_record(detail["receipt"])).hex() == detail["leaf_hash"]
    assert detail["leaf_hash"] == decision["receipt"]["leaf_hash"]


def test_an_unknown_receipt_is_404(gateway: Served) -> None:
    answer = gateway.ask("GET", "/v1/receipts/nothing", key="auditor")
    assert (answer.status, answer.code) == (404, "not_found")


def test_a_proof_verifies_against_the_root(gateway: Served) -> None:
    index = gateway.decide().json["receipt"]["index"]
    for at, size in ((index, index + 1), (0, index + 1), (7, 290), (255, 256)):
        proof = get(gateway, f"/v1/log/proof?index={at}&size={size}")
        path = [bytes.fromhex(node) for node in proof["path"]]
        verify_inclusion(bytes.fromhex(proof["leaf_hash"]), at, size, path, bytes.fromhex(proof["root"]))
    assert get(gateway, f"/v1/log/proof?index={index}")["size"] > index


def test_a_later_log_is_proved_to_continue_the_earlier_one(gateway: Served) -> None:
    size = gateway.decide().json["receipt"]["index"] + 1
    for first, second in ((0, size), (1, size), (256, 300), (size, size)):
        proof = get(gateway, f"/v1/log/consistency?first={first}&second={second}")
        path = [bytes.fromhex(node) for node in proof["path"]]
        roots = bytes.fromhex(proof["first_root"]), bytes.fromhex(proof["second_root"])
        verify_consistency(first, second, *roots, path)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/log/proof", "/v1/log/proof?index=99999999", "/v1/log/proof?index=5&size=5", "/v1/log/proof?index=-1",
        "/v1/log/proof?index=0&size=9007199254740993", "/v1/log/consistency", "/v1/log/consistency?first=5&second=4",
        "/v1/log/consistency?first=0&second=99999999", "/v1/log/export?size=99999999", "/v1/log/export?start=9&size=3",
    ],
)  # fmt: skip
def test_places_outside_the_log_are_422(gateway: Served, path: str) -> None:
    answer = gateway.ask("GET", path, key="auditor")
    assert answer.status == 422
    assert answer.code


def test_an_export_is_the_whole_log_in_canonical_lines(gateway: Served) -> None:
    answer = gateway.ask("GET", "/v1/log/export", key="auditor")
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = answer.body.splitlines()
    assert len(lines) == int(answer.headers["aegis-log-size"])
    previous = ""
    for index, line in enumerate(lines):
        body = json.loads(line)
        assert body["index"] == index
        assert body["prev"] == previous
        previous = leaf_hash(line).hex()
    part = gateway.ask("GET", "/v1/log/export?start=10&size=20", key="auditor").body.splitlines()
    assert part == lines[10:20]


def test_sessions_are_listed_and_traced(gateway: Served) -> None:
    gateway.decide(session="trace/with slash", call_id="t-1")
    gateway.decide("deploy", session="trace/with slash", call_id="t-2")
    newest = get(gateway, "/v1/sessions?limit=1")["items"][0]
    assert (newest["session"], newest["principal"], newest["count"]) == ("trace/with slash", "bot", 2)
    trace = get(gateway, "/v1/sessions/trace%2Fwith%20slash")
    assert [one["call_id"] for one in trace["items"]] == ["t-2", "t-1"]
    assert gateway.ask("GET", "/v1/sessions/never", key="auditor").status == 404
    page = get(gateway, "/v1/sessions?limit=2")
    following = get(gateway, f"/v1/sessions?limit=2&cursor={page['next']}")
    names = {one["session"] for one in page["items"]} & {one["session"] for one in following["items"]}
    assert names == set()


def test_sessions_are_found_by_every_filter(gateway: Served) -> None:
    before = gateway.decide(session="early", call_id="f-1").json["receipt"]["id"]
    gateway.decide("deploy", session="late", call_id="f-2", key="other")
    time = get(gateway, f"/v1/receipts/{before}")["receipt"]["time"].replace("+", "%2B")

    def found(query: str) -> set[str]:
        return {one["session"] for one in get(gateway, f"/v1/sessions?{query}")["items"]}

    assert {"late", "filtered"} >= found("agent=other") == found("principal=other") >= {"late"}
    assert found("session=early") == {"early"}
    assert found(f"since={time}") >= {"early", "late"}
    assert not {"bulk-0", "bulk-1", "bulk-2"} & found(f"since={time}")
    assert {"early", "bulk-0"} <= found(f"until={time}")
    assert "late" not in found(f"until={time}")
    assert found("until=2020-01-01T00:00:00Z") == found("since=2120-01-01T00:00:00Z") == set()
    page = get(gateway, "/v1/sessions?agent=bot&limit=1")
    following = get(gateway, f"/v1/sessions?agent=bot&limit=1&cursor={page['next']}")
    assert page["items"][0]["session"] != following["items"][0]["session"]
    for query, count in (("tool=deploy", 1), ("decision=allow", 0), ("kind=result", 0), (f"until={time}", 0)):
        assert len(get(gateway, f"/v1/sessions/late?{query}")["items"]) == count, query


@pytest.mark.parametrize(
    ("path", "body", "hint"),
    [
        ("/v1/missions", {"bogus": 1}, "at `/`: known are `mission`, `token`"),
        ("/v1/missions", {}, "at `/`: known are `mission`, `token`"),
        ("/v1/missions", {"mission": {}, "token": "x"}, "at `/`: known are `mission`, `token`"),
        ("/v1/missions", {"mission": 7}, "at `/mission`: type object"),
        ("/v1/approvals/x", {"decision": "yes"}, "at `/decision`: one of `approve`, `deny`"),
        ("/v1/decisions:batch", {"call": []}, "at `/`: known are `calls`; needed are `calls`"),
        ("/v1/decisions:batch", [{"tool": "x", "arguments": {}}, 1], "at `/1`: type object"),
    ],
)
def test_a_wrong_body_is_refused_with_what_would_be_right(gateway: Served, path: str, body: Any, hint: str) -> None:
    gateway.credentials.add("issuing", "issuer", "approver", "agent", agent="bot")
    answer = gateway.ask("POST", path, body, key="issuing")
    assert (answer.status, answer.json["error"]["hint"]) == (422, hint)


def test_a_session_is_opened_once_with_its_task(gateway: Served) -> None:
    body = {"session": "s-open", "task": SECRET}
    opened = gateway.ask("POST", "/v1/sessions", body)
    assert (opened.status, opened.json["session"]) == (201, "s-open")
    again = gateway.ask("POST", "/v1/sessions", body)
    assert (again.status, again.json) == (200, opened.json)
    other = gateway.ask("POST", "/v1/sessions", {**body, "task": "something else"})
    assert (other.status, other.code) == (409, "conflict")
    assert gateway.ask("POST", "/v1/sessions", body, key="other").status == 201  # another principal's own
    receipt = get(gateway, f"/v1/receipts/{opened.json['receipt']['id']}")
    assert receipt["receipt"]["kind"] == "session"
    assert SECRET not in json.dumps(receipt)
    assert gateway.ask("POST", "/v1/sessions", {}).json["session"]


def test_the_tools_of_a_session_may_hold_any_number(gateway: Served) -> None:
    body = {"session": "s-wide", "available_tools": [{"name": "sum", "schema": {"maximum": 2**70}}]}
    assert [gateway.ask("POST", "/v1/sessions", body).status for _ in range(2)] == [201, 200]
    narrower = {"name": "sum", "schema": {"maximum": 2**70 - 1}}
    assert gateway.ask("POST", "/v1/sessions", {**body, "available_tools": [narrower]}).status == 409


@pytest.mark.parametrize(
    "body",
    [
        {"task": 7}, {"session": ""}, {"session": " "}, {"task": "a" * 16_385}, {"name": "s"}, [],
        {"available_tools": {}}, {"mounts": {}}, {"proof": "p"},
    ],
)  # fmt: skip
def test_a_session_that_cannot_be_kept_as_asked_is_422(gateway: Served, body: Any) -> None:
    answer = gateway.ask("POST", "/v1/sessions", body)
    assert answer.status == 422
    assert answer.code


def test_metrics_count_what_was_decided(gateway: Served) -> None:
    def value(name: str) -> float:
        text = gateway.ask("GET", "/metrics", key="auditor").body.decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    before = value('aegis_decisions_total{outcome="block",reason="risk_ceiling"}')
    size = value("aegis_log_size")
    gateway.decide("deploy")
    assert value('aegis_decisions_total{outcome="block",reason="risk_ceiling"}') == before + 1
    assert value("aegis_log_size") == size + 1
    assert value("aegis_decision_seconds_count") > 300
    assert value('aegis_guard_seconds_count{guard="content"}') > 300
    assert value("aegis_queue_depth") == 0


def test_every_place_asks_for_its_role(gateway: Served) -> None:
    auditors = ("/v1/receipts", "/v1/receipts/x", "/v1/sessions", "/v1/sessions/x", "/v1/log/proof", "/metrics")
    for path in (*auditors, "/v1/log/export", "/v1/log/consistency", "/v1/log/checkpoint", "/v1/log/keys"):
        for key in ("bot", "ann", "root"):
            answer = gateway.ask("GET", path, key=key)
            assert (answer.status, answer.code) == (403, "forbidden")
            assert "`auditor`" in answer.json["error"]["hint"]
        assert gateway.ask("GET", path, key=None).status == 401
    for path in ("/v1/agents", "/v1/config"):
        for key in ("bot", "ann", "auditor"):
            assert gateway.ask("GET", path, key=key).status == 403
        assert gateway.ask("GET", path, key=None).status == 401
    for path in ("/healthz", "/readyz"):
        assert gateway.ask("GET", path, key=None).status == 200
    for path in ("/.well-known/jwks.json", "/openapi.json"):
        assert gateway.ask("GET", path, key=None).status == 401
        assert gateway.ask("GET", path, key="bot").status == 200


def test_a_checkpoint_is_signed_by_the_logs_key(gateway: Served) -> None:
    answer = gateway.ask("GET", "/v1/log/checkpoint", key="auditor")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    keys = [one for one in get(gateway, "/v1/log/keys")["keys"] if one["purpose"] == "log"]
    public = [base64.b64decode(one["public"]) for one in keys]
    checkpoint, _ = open_checkpoint(parse_checkpoint(answer.body), public)
    proof = get(gateway, f"/v1/log/proof?index=0&size={checkpoint.size}")
    assert proof["root"] == checkpoint.root.hex()


def test_public_keys_are_published_without_whose_they_are(gateway: Served) -> None:
    keys = get(gateway, "/.well-known/jwks.json", "bot")["keys"]
    assert {key["purpose"] for key in keys} == {"log", "receipt", "permit"}
    assert all(key["kty"] == "OKP" and len(key["x"]) == 43 for key in keys)
    assert "other" not in json.dumps(keys)


def test_every_failure_has_the_one_shape(gateway: Served) -> None:
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("GET", "/v1/decisions", 405),
        ("PUT", "/v1/decisions", 405),
        ("DELETE", "/v1/agents", 405),
        ("OPTIONS", "/v1/receipts", 405),
        ("POST", "/healthz", 405),
        ("GET", "/v1/receipts/", 404),
        ("GET", "/V1/receipts", 404),
    ):
        answer = gateway.ask(method, path, key="auditor")
        assert answer.status == status
        assert answer.code
        assert "access-control-allow-origin" not in answer.headers
    assert gateway.ask("DELETE", "/v1/agents").headers["allow"] == "GET, HEAD, POST"


def test_head_answers_as_get_without_a_body(gateway: Served) -> None:
    answer = gateway.ask("HEAD", "/healthz", key=None)
    assert (answer.status, answer.body) == (200, b"")
