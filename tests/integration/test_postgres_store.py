"""The log in PostgreSQL: several gateways, one chain; a server that is slow, gone or comes back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Reason
from aegis.errors import ConfigError, StoreUnavailable
from aegis.store import open_store
from aegis.store.postgres import reader as connecting
from support.deployments import TOOLS, deployment
from support.load import Acknowledged, load
from support.log_entries import grow
from support.postgres import Server, postgres
from support.receiver import until
from support.served import served
from support.shell import aegis, gateway

READ = ToolCall(tool="read_file", arguments={"path": "a.txt"})


def config(url: str) -> str:
    return f"version: 1\nstore: '{url}'\nlimits: {{rate: unlimited}}\n{TOOLS}"


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may stop."""
    with postgres() as server:
        yield server


def home_with(tmp_path: Path, url: str) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "aegis.yaml").write_text(config(url))
    (home / "aegis.yaml").chmod(0o600)
    return home


def verified(home: Path, place: Path) -> list[dict[str, object]]:
    """The receipts of an export that verifies."""
    out, trusted = place / "export", place / "keys.json"
    assert aegis("log", "export", "--home", home, "--out", out).returncode == 0
    shutil.copy(out / "keys.json", trusted)
    done = aegis("log", "verify", out, "--key", trusted)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in (out / "receipts.jsonl").read_bytes().splitlines()]


def test_two_gateways_keep_one_chain_and_lose_nothing_when_one_is_killed(
    tmp_path: Path, postgres_server: Server
) -> None:
    home = home_with(tmp_path, postgres_server.database())
    key = aegis("keys", "create", "--role", "agent", "--agent", "bot", "--home", home).stdout.strip()
    acknowledged: Acknowledged = []
    with gateway(home) as one, gateway(home) as two:
        ports = [urlsplit(running.url).port for running in (one, two)]
        callers = [threading.Thread(target=load, args=(port, key, acknowledged)) for port in ports for _ in range(3)]
        for caller in callers:
            caller.start()
        until(lambda: len(acknowledged) > 60)
        one.process.kill()
        seen = len(acknowledged)
        until(lambda: len(acknowledged) > seen + 60)
        two.process.kill()
        for caller in callers:
            caller.join()
    by_index = verified(home, tmp_path)
    assert len({index for _, index in acknowledged}) == len(acknowledged)
    assert all(by_index[index]["receipt_id"] == decision_id for decision_id, index in acknowledged)


def test_a_server_that_goes_is_a_refusal_and_one_that_comes_back_serves(own_server: Server, tmp_path: Path) -> None:
    with served(tmp_path / "home", config(own_server.database())) as running:
        assert running.decide().json["decision"] == "allow"
        own_server.stop()
        refused = running.decide()
        assert (refused.status, refused.json.get("reason", refused.json.get("error", {}).get("code"))) == (
            503,
            "unavailable",
        )
        own_server.start()
        until(lambda: running.decide().status == 200)
        assert running.ask("GET", "/v1/receipts", key="auditor").status == 200


def test_a_server_that_is_silent_is_a_refusal_in_bounded_time(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = deployment(tmp_path / "home", config(own_server.database()))
    assert place.gate.decide(READ).allowed
    monkeypatch.setattr(connecting, "ANSWER_S", 0.5)
    workers = own_server.sessions()
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert place.gate.decide(READ).reason is Reason.UNAVAILABLE
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
    until(lambda: place.gate.decide(READ).allowed)
    place.close()


def test_a_forked_child_leaves_the_connections_of_its_parent_alone(tmp_path: Path, postgres_server: Server) -> None:
    store = open_store(postgres_server.database(), home=tmp_path, durability="os")
    grow(store, 3)
    child = os.fork()
    if child == 0:
        try:
            grow(store, 2)
            store.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    grow(store, 1)
    with store.reader() as reader:
        assert reader.head().size == 6
    store.close()


def test_a_database_of_a_newer_version_is_not_touched(tmp_path: Path, postgres_server: Server) -> None:
    url = postgres_server.database()
    open_store(url, home=tmp_path).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE aegis_schema SET version = 99")
    with pytest.raises(StoreUnavailable, match="newer"):
        open_store(url, home=tmp_path)


def test_a_log_that_went_back_is_refused(tmp_path: Path, postgres_server: Server) -> None:
    url = postgres_server.database()
    place = deployment(tmp_path / "home", config(url))
    assert place.gate.decide(READ).allowed
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE aegis_control SET size = 0, leaf = '', frontier = '', time = 0")
    assert place.gate.decide(READ).reason is Reason.UNAVAILABLE
    place.close()


def test_the_url_may_come_from_the_environment_and_never_carries_a_password(
    tmp_path: Path, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOG_DATABASE", postgres_server.database())
    place = deployment(tmp_path / "home", config("${env:LOG_DATABASE}"))
    assert place.gate.decide(READ).allowed
    place.close()
    with pytest.raises(ConfigError, match="a password does not belong here"):
        deployment(tmp_path / "other", config("postgresql://me:secret@127.0.0.1/aegis"))


def test_a_server_that_is_not_there_says_so_without_the_url(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        open_store(f"postgresql://me:secret@/none?host={tmp_path}", home=tmp_path)
    assert "secret" not in str(caught.value)
    assert "does not answer" in str(caught.value)
