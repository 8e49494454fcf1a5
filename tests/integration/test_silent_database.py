"""A PostgreSQL that is frozen, locked or loses an answer: refusals in time for everybody, and nothing false is said."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from aegis.gate import commits
from aegis.server.table import ENDPOINTS
from aegis.store.postgres import reader as connecting
from aegis.store.postgres.reader import Connection
from aegis.store.sqlite import SqliteStore
from support.deployments import TOOLS
from support.postgres import Server, postgres
from support.receiver import until
from support.served import Served, served


def config(url: str) -> str:
    return f"version: 1\nstore: '{url}'\nlimits: {{rate: unlimited}}\n{TOOLS}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as running:
        yield running


@pytest.fixture
def url(server: Server) -> str:
    return server.database()


@pytest.fixture
def gateway(url: str, tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home", config(url)) as running:
        assert running.decide().status == 200
        yield running


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """Every process of the server is stopped."""
    pids = server.processes()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "ANSWER_S", 2.0)
    monkeypatch.setattr(connecting, "CONNECT_S", 2)
    monkeypatch.setattr(commits, "COMMIT_WAIT_S", 2.0)


@pytest.mark.claim("FLT-15")
def test_a_frozen_server_is_a_refusal_for_all_at_once(gateway: Served, server: Server, impatient: None) -> None:
    asks: list[tuple[str, str, Any, str]] = [("POST", "/v1/decisions", {"tool": "read_file", "arguments": {}}, "bot")]
    asks += [("GET", path, None, "auditor") for path in ("/v1/receipts", "/v1/sessions", "/v1/log/checkpoint")]
    asks += [("GET", "/v1/approvals", None, "ann"), ("GET", "/v1/agents", None, "root")]
    with ThreadPoolExecutor(60) as pool, frozen(server):
        waiting = [pool.submit(gateway.ask, *ask[:3], key=ask[3]) for ask in asks * 8]
        answered = 0
        while not all(one.done() for one in waiting):  # the loop turns all the while
            assert gateway.ask("GET", "/healthz", key=None).status == 200
            answered += 1
            time.sleep(0.01)
        assert answered > len(waiting)
        assert {one.result().status for one in waiting} == {503}
        ready = gateway.ask("GET", "/readyz", key=None)
        assert (ready.status, ready.code) == (503, "not_ready")
    until(lambda: gateway.decide().status == 200)
    until(lambda: gateway.ask("GET", "/readyz", key=None).status == 200)


@pytest.mark.claim("FLT-15")
@pytest.mark.parametrize("table", ["aegis_control", "aegis_leaf", "aegis_document"])
def test_a_table_that_somebody_locks_is_a_refusal(gateway: Served, url: str, table: str) -> None:
    with psycopg.connect(url) as other:
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        asked: list[int] = []
        waiting = threading.Thread(target=lambda: asked.append(gateway.decide("send_email").status))
        waiting.start()
        while waiting.is_alive():
            assert gateway.ask("GET", "/healthz", key=None).status == 200
            waiting.join(0.01)
        assert asked == [503]
    until(lambda: gateway.decide().status == 200)


@pytest.mark.claim("FLT-15")
def test_no_event_loop_waits_for_a_store_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a gateway is asked, its store is not called on a loop. SQLite stands for the store elsewhere."""
    found: set[str] = set()

    def watched(name: str) -> None:
        real = getattr(SqliteStore, name)

        def call(self: SqliteStore, *args: Any, **more: Any) -> Any:
            with suppress(RuntimeError):
                asyncio.get_running_loop()
                if threading.current_thread().name != "aegis-judges":  # a loop of its own, where nobody else waits
                    found.add("".join(traceback.format_stack(limit=4)[:-1]))
            return real(self, *args, **more)

        monkeypatch.setattr(SqliteStore, name, call)

    monkeypatch.setattr(SqliteStore, "is_remote", True)
    with served(tmp_path / "home") as running:
        for name in ("transaction", "reader", "epoch"):
            watched(name)
        held = running.decide("send_email", call_id="c-1", session="s-1").json
        running.ask("POST", held["approval"]["url"], {"decision": "approve", "scope": "once"}, key="ann")
        permit = running.decide("send_email", call_id="c-1", session="s-1").json["permit"]
        running.ask("POST", "/v1/permits/verify", {"permit": permit, "tool": "send_email", "arguments": {}})
        allowed = running.decide(call_id="c-2", session="s-1").json
        running.ask("POST", "/v1/results", {"decision_id": allowed["decision_id"], "result": "text"})
        running.ask("POST", f"/v1/results/{allowed['decision_id']}/stream", b"a\nb\n")
        running.ask("POST", "/v1/sessions", {"id": "s-2", "task": "write"})
        running.ask("POST", "/v1/decisions:batch", {"calls": [{"tool": "read_file", "arguments": {}}]})
        running.ask("POST", "/v1/agents/other/revoke", {"reason": "test"}, key="root")
        running.ask("POST", "/v1/agents/other/restore", {"reason": "test"}, key="root")
        names = {"id": held["approval"]["id"], "decision_id": allowed["decision_id"]}
        for endpoint in ENDPOINTS:
            if endpoint.method == "GET" and endpoint.path not in ("/v1/events",):
                path = re.sub(r"\{(\w+)(:path)?\}", lambda one: names.get(one[1], "s-1"), endpoint.path)
                for key in ("auditor", "ann", "root", "bot"):
                    running.ask("GET", path, key=key)
        for path in ("/", "/signin", "/welcome", "/approvals", "/calls"):
            running.ask("GET", path, key=None)
    assert not found, "\n".join(found)


@pytest.mark.claim("FLT-16")
def test_an_answer_of_a_person_whose_commit_lost_its_answer_is_read_again(
    gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = gateway.decide("send_email", call_id="c-1")
    path = held.json["approval"]["url"]
    lost = lose_answers(monkeypatch, 1)
    answered = gateway.ask("POST", path, {"decision": "approve"}, key="ann")
    assert (answered.status, answered.json["state"]) == (200, "approved")
    assert not lost
    lost = lose_answers(monkeypatch, 1)
    resumed = gateway.decide("send_email", call_id="c-1")
    assert (resumed.status, resumed.json["decision"]) == (200, "allow")
    lost = lose_answers(monkeypatch, 1)
    redeemed = gateway.ask(
        "POST", "/v1/permits/verify", {"permit": resumed.json["permit"], "tool": "send_email", "arguments": {}}
    )
    assert (redeemed.status, not lost) == (200, True)
    found = gateway.ask("GET", "/v1/receipts?call_id=c-1&limit=100", key="auditor").json["items"]
    assert sorted(one["kind"] for one in found if one["kind"] in ("decision", "approval")) == ["approval", "decision"]


@pytest.mark.claim("FLT-16")
def test_a_commit_that_did_not_take_place_is_not_answered_as_one(
    gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gateway.decide("send_email", call_id="c-1").json["approval"]["url"]
    lose_answers(monkeypatch, 1, commits=False)
    assert gateway.ask("POST", path, {"decision": "approve"}, key="ann").status == 503
    assert gateway.ask("GET", path, key="ann").json["state"] == "pending"
    assert gateway.ask("POST", path, {"decision": "approve"}, key="ann").status == 200


def lose_answers(monkeypatch: pytest.MonkeyPatch, count: int, *, commits: bool = True) -> list[int]:
    """Lose the answer to the next commits of records; what is left to lose is in the list."""
    left, real = [1] * count, Connection.commit

    def commit(self: Connection) -> None:
        # A driver is no thread of `threading`; previews and deliveries, which commit beside it, are.
        if not threading.current_thread().name.startswith("Dummy") or not left:
            return real(self)
        left.pop()
        if commits:
            real(self)
            self.execute("SELECT 1").fetchall()  # the server did it
        self.close()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(Connection, "commit", commit)
    return left
