"""kill -9 under load: what was acknowledged is in the log, and the log verifies."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from support.deployments import TOOLS
from support.load import Acknowledged, load
from support.shell import aegis, gateway

ROUNDS = 20
CALLERS = 6
CONFIG = f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}"


def test_a_killed_gateway_has_recorded_everything_that_it_acknowledged(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "aegis.yaml").write_text(CONFIG)
    (home / "aegis.yaml").chmod(0o600)
    key = aegis("keys", "create", "--role", "agent", "--agent", "bot", "--home", home).stdout.strip()
    acknowledged: Acknowledged = []
    for round_ in range(ROUNDS):
        with gateway(home) as running:
            port = urlsplit(running.url).port
            assert port is not None
            callers = [threading.Thread(target=load, args=(port, key, acknowledged)) for _ in range(CALLERS)]
            for caller in callers:
                caller.start()
            time.sleep(0.15 + 0.02 * round_)
            running.process.kill()
            running.process.wait()
            for caller in callers:
                caller.join()
    assert len(acknowledged) > ROUNDS

    out, trusted = tmp_path / "export", tmp_path / "keys.json"
    assert aegis("log", "export", "--home", home, "--out", out).returncode == 0
    shutil.copy(out / "keys.json", trusted)
    assert aegis("log", "verify", out, "--key", trusted).returncode == 0
    by_index = [json.loads(line) for line in (out / "receipts.jsonl").read_bytes().splitlines()]
    for decision_id, index in acknowledged:
        assert by_index[index]["receipt_id"] == decision_id
        assert by_index[index]["decision"] == "allow"
