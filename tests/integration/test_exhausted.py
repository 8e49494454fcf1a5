"""A process that runs out of memory, files or threads refuses for a while, and blames nobody's call."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Reason
from support.deployments import deployment
from support.faults import FaultyStore, gate_over
from support.processes import Process, gateway_process
from support.receiver import until
from support.served import served

READ = ToolCall(tool="read_file", arguments={"path": "a.txt"})
BODY = b'{"tool": "read_file", "arguments": {"path": [' + b",".join(b'"%032d"' % one for one in range(90_000)) + b"]}}"


def memory_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.mark.claim("FLT-18")
def test_a_limit_of_memory_is_503_and_never_the_callers_fault(tmp_path: Path) -> None:
    with gateway_process(tmp_path / "home", log=tmp_path / "log") as gateway:
        whole = gateway.ask("POST", "/v1/decisions", BODY)[0]
        assert gateway.decide()[0] == 200
        statuses: list[int] = []
        for room in range(0, 24_000_000, 2_000_000):
            limit(gateway, resource.RLIMIT_AS, memory_of(gateway.process.pid) + room)
            status, body = gateway.ask("POST", "/v1/decisions", BODY)
            limit(gateway, resource.RLIMIT_AS, resource.RLIM_INFINITY)
            statuses.append(status)
            assert status in (whole, 503), body
            if status == 503:
                assert body.get("reason", body.get("error", {}).get("code")) == "unavailable"
        assert 503 in statuses
        assert gateway.decide()[0] == 200


@pytest.mark.claim("FLT-18")
def test_a_process_without_files_comes_back(tmp_path: Path) -> None:
    with gateway_process(tmp_path / "home", log=tmp_path / "log") as gateway:
        assert gateway.decide()[0] == 200
        soft = len(list(Path(f"/proc/{gateway.process.pid}/fd").iterdir())) + 3
        limit(gateway, resource.RLIMIT_NOFILE, soft)
        with ExitStack() as stack:
            for _ in range(12):
                stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
        limit(gateway, resource.RLIMIT_NOFILE, 1_024)
        until(lambda: answers(gateway))


@pytest.mark.claim("FLT-18")
@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(24, "too many open files"), RuntimeError("can't start new thread")]
)
def test_whatever_runs_out_a_call_is_refused(tmp_path: Path, error: Exception) -> None:
    place = deployment(tmp_path / "home")
    store = FaultyStore(place.store, broken={"transaction"}, error=error)
    gate = gate_over(place, store=store)
    assert gate.decide(READ).reason is Reason.UNAVAILABLE
    store.broken = set()
    assert gate.decide(READ).allowed
    place.close()


@pytest.mark.claim("FLT-18")
@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/results", "/v1/decisions:batch"])
def test_a_body_that_cannot_be_read_for_want_of_memory_is_503(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_left(_: bytes) -> Any:
        raise MemoryError

    with served(tmp_path / "home") as running:
        with monkeypatch.context() as patched:
            for module in ("decisions", "routing"):
                patched.setattr(f"aegis.server.{module}.parse", nothing_left)
            answer = running.ask("POST", path, {"tool": "read_file", "arguments": {}})
            assert (answer.status, answer.code) == (503, "unavailable")
        assert running.decide().status == 200


def answers(gateway: Process) -> bool:
    """Whether a decision is had; what waited while there were no files is accepted only to be closed."""
    try:
        return bool(gateway.decide()[0] == 200)
    except ConnectionError:
        return False


def limit(gateway: Process, what: int, soft: int) -> None:
    hard = resource.prlimit(gateway.process.pid, what)[1]
    resource.prlimit(gateway.process.pid, what, (soft, hard))
