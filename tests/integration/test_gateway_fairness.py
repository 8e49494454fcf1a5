"""One principal and the others: what is asked of the loop, in which order, and what a flood leaves; without a clock."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.core.json import parse
from aegis.gate.workers import LIGHT_BYTES
from aegis.policy.model import Incoming, IncomingResult
from aegis.policy.policy import Policy
from aegis.server import decisions, routing
from aegis.server.http import LARGE_BYTES
from support.judging import config as judged_by
from support.receiver import until
from support.scripted_model import ScriptedModel, scripted_model
from support.served import Answer, Served, served

STATEMENT = "SELECT a FROM t WHERE x=1 UNION SELECT b FROM u WHERE y IN (SELECT z FROM v); "
HEAVY = {"query": STATEMENT * 180}
PROSE = "the meeting moved to Thursday because the room was taken on the day before. "
RATES = "version: 1\nprofile: standard\nlimits: {{{}}}\ntools: {{read_file: {{risk: low, effects: [read]}}}}\n"


@pytest.fixture
def gateway(shared_gateway: Served) -> Served:
    return shared_gateway


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as running:
        yield running


def stored(gateway: Served, answer: Answer) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
    """The receipt of a decision, its payload as it is stored, and what that says."""
    with gateway.deployment.store.reader() as reader:
        entry = reader.entry_by_id(answer.json["decision_id"])
        assert entry is not None
        payload = reader.payload(entry.index)
    assert payload is not None
    said = parse(gateway.deployment.keyring.open_payload(payload.key, payload.body))
    return json.loads(entry.body), payload.body, said


def test_what_is_heavy_is_neither_read_nor_evaluated_by_the_gateway_itself(
    gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    evaluate, evaluate_result = Policy.evaluate, Policy.evaluate_result

    def evaluated(self: Policy, incoming: Incoming, data: bytes) -> Any:
        sizes.append(len(data))
        return evaluate(self, incoming, data)

    def judged(self: Policy, incoming: IncomingResult, data: bytes) -> Any:
        sizes.append(len(data))
        return evaluate_result(self, incoming, data)

    def parsed(data: bytes) -> Any:
        sizes.append(len(data))
        return parse(data)

    monkeypatch.setattr(Policy, "evaluate", evaluated)
    monkeypatch.setattr(Policy, "evaluate_result", judged)
    monkeypatch.setattr(decisions, "parse", parsed)
    monkeypatch.setattr(routing, "parse", parsed)
    light = gateway.decide(arguments={"path": "a"})
    assert len(sizes) == 2
    assert gateway.decide("run_sql", arguments=HEAVY).json["decision"] == "allow"
    calls = [{"tool": "run_sql", "arguments": HEAVY, "call_id": f"h{number}"} for number in range(10)]
    answers = gateway.ask("POST", "/v1/decisions:batch", {"calls": calls}).json["decisions"]
    assert [answer["call_id"] for answer in answers] == [call["call_id"] for call in calls]
    assert {answer["decision"] for answer in answers} == {"allow"}
    again = gateway.ask("POST", "/v1/decisions:batch", {"calls": calls}).json["decisions"]
    assert [answer["receipt"] for answer in again] == [answer["receipt"] for answer in answers]
    result = {"decision_id": light.json["decision_id"], "result": [PROSE * 1_000]}
    assert gateway.ask("POST", "/v1/results", result).json["decision"] == "allow"
    permit = {"permit": "a.b.c", "tool": "t", "arguments": HEAVY}
    assert gateway.ask("POST", "/v1/permits/verify", permit).status == 403
    assert max(sizes) <= max(LIGHT_BYTES, LARGE_BYTES)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"tool":"t","arguments":[%s]}', "malformed"),
        (b'{"tool":"t","arguments":{"a":[%s]},"arguments":{}}', "duplicate_key"),
        (b'{"tool":"t","arguments":{"a":[%s]},"more":1}', "unknown_member"),
        (b'{"tool":"t","argument":{"a":[%s]}}', "unknown_member"),
        (b'{"tool":1,"arguments":{"a":[%s]}}', "malformed"),
        (b'{"tool":"t","arguments":{"a":[%s]}', "malformed"),
        (b"[%s]", "malformed"),
    ],
)
def test_a_large_body_is_refused_for_what_a_small_one_is(gateway: Served, body: bytes, code: str) -> None:
    for size in (1, LARGE_BYTES):
        data = body % b",".join([b"1"] * size)
        answer = gateway.ask("POST", "/v1/decisions", data)
        assert (answer.status, answer.code) == (422, code)
        batch = gateway.ask("POST", "/v1/decisions:batch", b'{"calls":[%s]}' % data)
        assert batch.status == 422


def test_a_batch_of_one_agent_lets_every_other_pass(gateway: Served) -> None:
    """The calls of a batch are decided a few at a time: another agent's come between them."""
    order: list[str] = []
    gateway.deployment.gate.parts.listeners.append(lambda event: order.append(event.members.get("agent", "")))
    heavy = [{"tool": "run_sql", "arguments": HEAVY} for _ in range(40)]
    asking = threading.Thread(target=gateway.ask, args=("POST", "/v1/decisions:batch", {"calls": heavy}))
    asking.start()
    until(lambda: "bot" in order)
    for _ in range(5):
        assert gateway.decide(key="other", arguments={"path": "a"}).json["decision"] == "allow"
        assert gateway.decide("run_sql", key="other", arguments=HEAVY).json["decision"] == "allow"
    before = order.count("bot")
    asking.join()
    assert before < order.count("bot") == 40


def test_a_call_whose_worker_dies_is_refused_and_on_record(gateway: Served) -> None:
    assert gateway.decide("run_sql", arguments=HEAVY).json["decision"] == "allow"
    (worker,) = gateway.app.services.workers._running
    worker.kill()
    answer = gateway.decide("run_sql", arguments={"query": PROSE * 100})  # read here, evaluated by the worker
    assert (answer.status, answer.json["decision"], answer.json["reason"]) == (200, "block", "unavailable")
    receipt, _, _ = stored(gateway, answer)
    assert [guard["guard"] for guard in receipt["guards"]] == ["evaluation"]
    assert gateway.decide("run_sql", arguments=HEAVY).json["decision"] == "allow"


def test_a_call_beyond_the_rate_is_not_looked_at_and_leaves_its_digest(tmp_path: Path) -> None:
    with served(tmp_path / "home", RATES.format("rate: 1/hour")) as gateway:
        assert gateway.decide(arguments={"path": "a"}).status == 200
        large = {"text": PROSE * 11_000, "command": "rm -rf /"}
        answer = gateway.decide("note", arguments=large, call_id="c", task="a" * 16_000)
        assert (answer.status, answer.json["reason"]) == (429, "rate_limited")
        assert int(answer.headers["retry-after"]) > 3_000
        receipt, payload, said = stored(gateway, answer)
        assert [guard["guard"] for guard in receipt["guards"]] == ["rate"]
        assert (receipt["decision"], receipt["reason"], receipt["tool"]) == ("block", "rate_limited", "note")
        assert {"call_commitment", "payload_commitment", "policy_digest", "sig"} <= set(receipt)
        assert len(payload) < 1_500
        assert said["request_digest"] == answer.json["request_digest"]
        assert said["size"] > 800_000
        assert "arguments" not in said
        again = gateway.decide("note", arguments=large, call_id="c")
        assert again.json["receipt"] == answer.json["receipt"]
        shown = gateway.ask("GET", f"/v1/receipts/{answer.json['decision_id']}", key="auditor").json["payload"]
        assert "arguments" not in shown
        replay = gateway.ask(
            "POST", "/v1/config:replay", RATES.format("rate: 1/hour").encode(), key="root",
            headers={"content-type": "application/yaml"},
        )  # fmt: skip
        assert (replay.status, replay.json["replayed"], replay.json["skipped"]) == (200, 1, 1)


def test_bytes_have_a_rate_of_their_own_for_calls_and_results(tmp_path: Path) -> None:
    with served(tmp_path / "home", RATES.format("rate: 1000/hour, byte_rate: 100KiB/hour")) as gateway:
        first = gateway.decide(arguments={"path": "a"})
        assert gateway.decide("note", arguments={"text": PROSE * 1_500}).json["decision"] == "allow"
        answer = gateway.decide("note", arguments={"text": "a"})
        assert (answer.status, answer.json["decision"], answer.json["reason"]) == (429, "block", "rate_limited")
        assert int(answer.headers["retry-after"]) > 3_000
        assert stored(gateway, answer)[0]["guards"] == [
            {"guard": "rate", "outcome": "block", "rules": ["byte-rate-limit"]}
        ]
        result = {"decision_id": first.json["decision_id"], "result": "a"}
        refused = gateway.ask("POST", "/v1/results", result)
        assert (refused.status, refused.json["decision"], refused.json["reason"]) == (429, "block", "rate_limited")
        assert int(refused.headers["retry-after"]) > 3_000
        assert gateway.decide("note", key="other", arguments={"text": "a"}).status == 200


@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/decisions:batch"])
@pytest.mark.parametrize("padding", ["", PROSE * 400])
def test_a_caller_that_goes_away_ends_its_judge(tmp_path: Path, model: ScriptedModel, path: str, padding: str) -> None:
    with served(tmp_path / "home", judged_by(model)) as gateway:
        call = {"tool": "read_file", "arguments": {"path": "a", "padding": padding}}
        body = json.dumps(call if path == "/v1/decisions" else {"calls": [call, call]}).encode()
        model.held.clear()
        try:
            for connection in (
                socket.create_connection(("127.0.0.1", gateway.port)),
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
            ):
                asked, ended = len(model.asked), len(ends(gateway))
                with connection:
                    if connection.family is socket.AF_UNIX:
                        connection.connect(str(gateway.unix))
                    connection.sendall(gateway.head(path, content_length=str(len(body))) + b"\r\n" + body)
                    until(lambda asked=asked: len(model.asked) > asked)  # type: ignore[misc]
                until(lambda ended=ended: len(ends(gateway)) > ended)  # type: ignore[misc]
                assert ends(gateway)[-1]["judge"]["cause"] == "cancelled"
                assert len(model.asked) == asked + 1
        finally:
            model.held.set()


def ends(gateway: Served) -> list[dict[str, Any]]:
    """The ends of judges' runs, in their order."""
    items = gateway.ask("GET", "/v1/receipts?kind=judge&limit=100", key="auditor").json["items"]
    return [item for item in reversed(items) if item["action"] == "ended"]
