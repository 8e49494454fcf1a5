"""kill -9 under load: what was acknowledged is in the log, and the log verifies."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path

import pytest

from support.gateways import AEGIS, Gateway, start_gateway

ROUNDS = 20
CALLERS = 6


def load(gateway: Gateway, acknowledged: list[tuple[str, int, str]], stop: threading.Event) -> None:
    """Decide until the gateway is gone; remember what it acknowledged."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=5)
    headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
    while not stop.is_set():
        body = json.dumps({"tool": "read_file", "arguments": {"path": "a.txt"}, "call_id": uuid.uuid4().hex})
        try:
            connection.request("POST", "/v1/decisions", body, headers)
            answer = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return
        if answer["decision"] == "allow":
            acknowledged.append((answer["decision_id"], answer["receipt"]["index"], answer["receipt"]["leaf_hash"]))


@pytest.mark.slow
def test_a_killed_gateway_has_recorded_everything_that_it_acknowledged(tmp_path: Path) -> None:
    home = tmp_path / "home"
    acknowledged: list[tuple[str, int, str]] = []
    for round_ in range(ROUNDS):
        gateway = start_gateway(home)
        stop = threading.Event()
        callers = [threading.Thread(target=load, args=(gateway, acknowledged, stop)) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        time.sleep(0.15 + 0.02 * round_)
        os.kill(gateway.process.pid, signal.SIGKILL)
        gateway.process.wait()
        stop.set()
        for caller in callers:
            caller.join()
    assert len(acknowledged) > ROUNDS

    out = tmp_path / "export"
    subprocess.run([*AEGIS, "log", "export", "--home", str(home), "--out", str(out)], check=True)
    trusted = tmp_path / "keys.json"
    trusted.write_bytes((out / "keys.json").read_bytes())
    subprocess.run([*AEGIS, "log", "verify", str(out), "--key", str(trusted)], check=True)
    by_index = [json.loads(line) for line in (out / "receipts.jsonl").read_bytes().splitlines()]
    for decision_id, index, _ in acknowledged:
        assert by_index[index]["receipt_id"] == decision_id
        assert by_index[index]["decision"] == "allow"
