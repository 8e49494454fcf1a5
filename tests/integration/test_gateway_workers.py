"""One gateway of several processes: what one of them does holds for all, and whoever dies is started again."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.postgres import postgres
from support.processes import CONFIG, Process, gateway_process

CALLS = 12  # connections that both processes take some of


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with gateway_process(tmp_path_factory.mktemp("workers") / "home", workers=2) as running:
        both(running)
        yield running


def children(gateway: Process) -> list[int]:
    """The processes of a gateway in the order of their start, the front first."""
    found = Path(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children").read_text().split()
    return sorted(map(int, found))


def processor_time(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def decide_at_once(gateway: Process, count: int = CALLS, **members: Any) -> list[tuple[int, Any]]:
    """Decisions over connections of their own, at one time."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: gateway.decide(**members), range(count)))


def both(gateway: Process) -> None:
    """Return once both processes decide: the second is there as soon as the front hears it."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        text = metrics(gateway)
        if "aegis_processes 2.0" in text:
            return
        time.sleep(0.05)
    raise AssertionError("the second process did not start")


def metrics(gateway: Process) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    connection.request("GET", "/metrics", headers={"authorization": f"Bearer {gateway.keys['auditor']}"})
    return connection.getresponse().read().decode()


def allowed(gateway: Process) -> float:
    """How many calls were let through, as `/metrics` says."""
    lines = [line for line in metrics(gateway).splitlines() if line.startswith('aegis_decisions_total{outcome="allow"')]
    return sum(float(line.split()[-1]) for line in lines)


def words(found: list[tuple[int, Any]]) -> set[str]:
    return {answer["decision"] for _, answer in found}


def test_a_stop_holds_for_every_process_once_it_is_answered(gateway: Process) -> None:
    for _ in range(3):
        assert words(decide_at_once(gateway)) == {"allow"}
        assert gateway.ask("POST", "/v1/agents/bot/revoke", {"reason": "a test"}, key="admin")[0] == 200
        assert words(decide_at_once(gateway)) == {"block"}
        assert gateway.ask("POST", "/v1/agents/bot/restore", {"reason": "a test"}, key="admin")[0] == 200
        assert gateway.ask("POST", "/v1/kill", {"reason": "a test"}, key="admin")[0] == 200
        assert words(decide_at_once(gateway)) == {"block"}
        assert gateway.ask("POST", "/v1/kill/release", {"reason": "a test"}, key="admin")[0] == 200


def test_a_configuration_is_in_force_everywhere_once_its_change_is_answered(gateway: Process) -> None:
    strict = CONFIG.replace("read_file: {risk: low", "read_file: {risk: critical").encode()
    for text, word in ((strict, "block"), (CONFIG.encode(), "allow"), (strict, "block"), (CONFIG.encode(), "allow")):
        status, change = gateway.ask("PUT", "/v1/config", text, key="admin")
        assert status == 200, change
        found = decide_at_once(gateway)
        assert words(found) == {word}
        assert {answer["policy_digest"] for _, answer in found} == {change["digest"]}


def test_a_call_that_comes_to_several_at_once_is_decided_once(gateway: Process) -> None:
    for _ in range(3):
        found = decide_at_once(gateway, call_id=uuid.uuid4().hex)
        assert {status for status, _ in found} == {200}
        assert len({answer["decision_id"] for _, answer in found}) == 1


def test_rates_and_loops_are_counted_once_over_all_processes(gateway: Process) -> None:
    rate = CONFIG.replace(
        "limits: {rate: unlimited}", "limits: {rate: 30/hour}\nguards: {loops: {mode: 'off'}}"
    ).encode()
    loops = f"{CONFIG}guards: {{loops: {{mode: enforce, identical: 9/10m}}}}\n".encode()
    assert CONFIG.encode() != rate
    arguments = {"path": uuid.uuid4().hex}
    for text, limit, key in ((rate, 30, "other"), (loops, 9, "bot")):
        assert gateway.ask("PUT", "/v1/config", text, key="admin")[0] == 200
        found = decide_at_once(gateway, 3 * limit, key=key, arguments=arguments)
        found += decide_at_once(gateway, limit, key=key, arguments=arguments)
        assert [answer["decision"] for _, answer in found].count("allow") == limit
    assert gateway.ask("PUT", "/v1/config", CONFIG.encode(), key="admin")[0] == 200


def test_what_only_the_front_does_is_answered_by_everybody(gateway: Process) -> None:
    for _ in range(6):
        assert gateway.ask("GET", "/healthz")[0] == 200
        assert gateway.ask("GET", "/readyz")[0] == 200
        assert gateway.ask("GET", "/openapi.json")[1]["openapi"] == "3.1.0"
        assert len(gateway.ask("GET", "/v1/receipts?limit=3", key="auditor")[1]["items"]) == 3
        assert gateway.ask("GET", "/v1/nothing")[0] == 404
        assert gateway.ask("GET", "/v1/receipts")[0] == 403
        assert gateway.ask("POST", "/v1/sessions", {"session": uuid.uuid4().hex, "task": "a test"})[0] in {200, 201}


def test_the_counters_of_all_processes_are_one(gateway: Process) -> None:
    before = allowed(gateway)
    assert words(decide_at_once(gateway, 40)) == {"allow"}
    assert allowed(gateway) == before + 40


@pytest.mark.parametrize("which", ["front", "decider"])
def test_a_killed_process_loses_nothing_that_was_answered_and_is_started_again(gateway: Process, which: str) -> None:
    both(gateway)
    before = children(gateway)
    assert len(before) == 2
    victim = before[0 if which == "front" else 1]
    answered: list[str] = []
    done = threading.Event()

    def call() -> None:
        while not done.is_set():
            try:
                status, answer = gateway.decide()
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                continue  # it was the killed one's connection
            if status == 200:
                answered.append(answer["receipt"]["id"])

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    wait_for(lambda: len(answered) > 40)
    os.kill(victim, signal.SIGKILL)
    seen = len(answered)
    wait_for(lambda: len(answered) > seen + 40)
    done.set()
    for caller in callers:
        caller.join(30)
    both(gateway)
    assert victim not in children(gateway)
    for receipt in (*answered[:10], *answered[seen - 10 : seen + 10]):
        assert gateway.ask("GET", f"/v1/receipts/{receipt}", key="auditor")[0] == 200
    assert len(set(answered)) == len(answered)


def test_both_decide(gateway: Process) -> None:
    both(gateway)
    before = [processor_time(pid) for pid in children(gateway)]
    for _ in range(15):
        decide_at_once(gateway, 20)
    assert all(processor_time(pid) > was for pid, was in zip(children(gateway), before, strict=True))


def wait_for(condition: Any, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_end_of_the_parent_is_the_end_of_all_and_the_doors_are_free(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway_process(home, workers=2) as gateway:
        both(gateway)
        running = children(gateway)
        answer = gateway.decide()[1]
        gateway.process.kill()
        gateway.process.wait()
        wait_for(lambda: not any(map(is_alive, running)))
        port = gateway.port
    with gateway_process(home, port=port, workers=2) as again:
        assert again.ask("GET", f"/v1/receipts/{answer['receipt']['id']}", key="auditor")[0] == 200
        running = children(again)
        again.process.send_signal(signal.SIGTERM)
        assert again.process.wait(30) == 0
        assert not any(map(is_alive, running))
        assert not [path.name for path in home.iterdir() if path.suffix == ".sock"]


def test_what_cannot_start_is_said_once_and_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="several processes cannot share a store in memory"):  # noqa: SIM117
        with gateway_process(tmp_path / "home", CONFIG + "store: 'memory:'\n", workers=2):
            pass


def test_processes_over_postgresql_decide_as_one(tmp_path: Path) -> None:
    with postgres() as server:
        config = f"{CONFIG}store: {server.database()!r}\n"
        with gateway_process(tmp_path / "home", config, workers=2) as gateway:
            both(gateway)
            assert words(decide_at_once(gateway)) == {"allow"}
            assert gateway.ask("POST", "/v1/agents/bot/revoke", {"reason": "a test"}, key="admin")[0] == 200
            assert words(decide_at_once(gateway)) == {"block"}
