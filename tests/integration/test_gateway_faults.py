"""A lost, full or locked store: calls are refused, nothing is allowed unrecorded, and it recovers by itself."""

from __future__ import annotations

import resource
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from aegis.errors import StoreUnavailable
from support.processes import gateway_process
from support.served import Served, served


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home") as running:
        yield running


def gone(*arguments: Any, **named: Any) -> NoReturn:
    raise StoreUnavailable("the store is gone")


def refused(status: int, decision: Any) -> bool:
    return status == 503 and (decision["decision"], decision["reason"]) == ("block", "unavailable")


def test_without_a_log_a_call_is_503_and_a_block(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    first = gateway.decide().json["receipt"]["index"]
    with monkeypatch.context() as broken:
        broken.setattr(gateway.deployment.store, "transaction", gone)
        answer = gateway.decide()
        assert refused(answer.status, answer.json)
        assert int(answer.headers["retry-after"]) >= 1
        assert "receipt" not in answer.json
        batch = gateway.ask("POST", "/v1/decisions:batch", {"calls": [{"tool": "read_file", "arguments": {}}]})
        assert refused(batch.status, batch.json["decisions"][0])
        for path, key in (("/v1/agents/bot/revoke", "root"), ("/v1/sessions", "bot")):
            failed = gateway.ask("POST", path, {}, key=key)
            assert (failed.status, failed.code) == (503, "unavailable")
    assert gateway.decide().json["receipt"]["index"] == first + 1


def test_a_result_that_cannot_be_recorded_is_withheld(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"decision_id": gateway.decide().json["decision_id"], "result": "text"}
    with monkeypatch.context() as broken:
        broken.setattr(gateway.deployment.store, "transaction", gone)
        answer = gateway.ask("POST", "/v1/results", body)
        assert refused(answer.status, answer.json)
    assert gateway.ask("POST", "/v1/results", body).json["decision"] == "allow"


def test_without_a_store_nobody_is_known_and_nothing_allowed(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(gateway.deployment.store, "epoch", gone)
        answer = gateway.decide(call_id="c-9")
        assert refused(answer.status, answer.json)
        assert answer.json["call_id"] == "c-9"
        other = gateway.ask("GET", "/v1/receipts", key="auditor")
        assert (other.status, other.code) == (503, "unavailable")
    assert gateway.decide().status == 200


def test_readiness_says_what_is_missing_and_comes_back(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aegis.server.services.FRESH_S", 0.0)
    assert gateway.ask("GET", "/readyz", key=None).status == 200
    with monkeypatch.context() as broken:
        broken.setattr(gateway.deployment.store, "transaction", gone)
        answer = gateway.ask("GET", "/readyz", key=None)
        assert (answer.status, answer.code) == (503, "not_ready")
        assert answer.json["error"]["message"] == "the log cannot be written"
        assert gateway.ask("GET", "/healthz", key=None).status == 200
    assert gateway.ask("GET", "/readyz", key=None).status == 200


def test_a_lost_database_refuses_until_it_is_back(gateway: Served) -> None:
    home = gateway.deployment.home
    first = gateway.decide().json["receipt"]["index"]
    moved = []
    for file in home.glob("aegis.db*"):
        moved.append((file, file.rename(home / f"away-{file.name}")))
    for _ in range(3):
        answer = gateway.decide()
        assert refused(answer.status, answer.json)
    for file in home.glob("aegis.db*"):  # whatever was made in its place is not the log
        file.unlink()
    for file, away in moved:
        away.rename(file)
    for _ in range(100):
        if gateway.decide().status == 200:
            break
        time.sleep(0.05)
    assert gateway.decide().json["receipt"]["index"] > first


def test_a_locked_database_refuses_and_recovers(gateway: Served) -> None:
    other = sqlite3.connect(gateway.deployment.home / "aegis.db")
    other.execute("BEGIN EXCLUSIVE")
    answer = gateway.decide()
    assert refused(answer.status, answer.json)
    other.rollback()
    other.close()
    assert gateway.decide().status == 200


def test_a_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    with gateway_process(tmp_path / "home") as gateway:
        assert gateway.decide()[0] == 200
        _, hard = resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (4_096, hard))
        for _ in range(2):
            assert refused(*gateway.decide())
        assert gateway.ask("GET", "/healthz")[0] == 200
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        status, decision = gateway.decide()
        assert (status, decision["decision"]) == (200, "allow")
        status, page = gateway.ask("GET", "/v1/receipts?kind=decision", key="auditor")
        assert [one["decision"] for one in page["items"]] == ["allow"] * 2
