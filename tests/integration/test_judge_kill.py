"""kill -9 of a gateway while a judge looks at a call: it does not run, the judge's run ends, no process stays."""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.processes import Process, gateway_process
from support.shell import aegis

CHECK = """
import json, os, sys, time
json.load(sys.stdin)
if not os.path.exists("answer"):
    time.sleep(300)
data = {"score": 0.0, "confidence": 1.0, "reasoning": "no", "signals": [], "metadata": {}}
os.write(int(os.environ["AEGIS_RESULT_FD"]), json.dumps(data).encode())
"""
SECONDS = 15  # of the judge: its run counts as lost a little later


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 180
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def processes(script: Path) -> Iterator[bytes]:
    """The program of every process of this machine that was started with `script` on its command line."""
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            line = (place / "cmdline").read_bytes() if place.name.isdigit() else b""
            if script.name.encode() in line:
                yield line.partition(b"\0")[0]


def looks(script: Path) -> bool:
    """Whether the judge itself runs, and not only what is going to start it."""
    return any(not program.endswith(b"bwrap") for program in processes(script))


def rows(gateway: Process, kind: str) -> list[dict[str, Any]]:
    status, body = gateway.ask("GET", f"/v1/receipts?kind={kind}&limit=100", key="auditor")
    assert status == 200
    return [row for row in body["items"] if row["kind"] == kind]


def test_a_gateway_that_is_killed_in_mid_judgement_leaves_a_run_that_ends_and_nothing_else(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir(mode=0o700)
    workspace.mkdir()
    script = home / f"check-{os.getpid()}.py"
    script.write_text(CHECK)
    programs = sorted({str(Path(sys.prefix).resolve()), str(Path(sys.base_prefix).resolve())})
    (home / "check.yaml").write_text(
        f"name: check\ncommand: [{sys.executable}, -B, {script.name}]\nprograms: {json.dumps(programs)}\n"
    )
    config = (
        "version: 1\nlimits: {rate: unlimited}\ntools: {note: {risk: low}}\n"
        f"previews: {{workspace: {workspace}}}\n"
        f"judges: [{{name: check, judge: check.yaml, timeout_seconds: {SECONDS}}}]\n"
    )
    said: list[Any] = []
    with gateway_process(home, config, log=tmp_path / "log") as gateway:

        def ask() -> None:
            with suppress(OSError, http.client.HTTPException, ValueError):
                said.append(gateway.decide("note", call_id="c"))

        caller = threading.Thread(target=ask)
        caller.start()
        wait_for(lambda: looks(script))
        gateway.process.kill()
        gateway.process.wait()
        caller.join()
    assert said == []
    wait_for(lambda: not list(processes(script)))
    with gateway_process(home, config, log=tmp_path / "log") as gateway:
        wait_for(lambda: len(rows(gateway, "judge")) == 2)
        started, ended = sorted(rows(gateway, "judge"), key=lambda row: int(row["index"]))
        assert (started["action"], ended["action"], ended["judge"]["cause"]) == ("started", "ended", "lost")
        assert ended["parent"] == started["receipt_id"]
        assert rows(gateway, "decision") == []
        (workspace / "answer").touch()
        status, again = gateway.decide("note", call_id="c")
        assert (status, again["decision"], again["reason"]) == (200, "block", "judge_rejected")
        gateway.process.terminate()
        gateway.process.wait()
    out, trusted = tmp_path / "export", tmp_path / "keys.json"
    assert aegis("log", "export", "--home", home, "--out", out).returncode == 0
    (out / "keys.json").rename(trusted)
    assert aegis("log", "verify", out, "--key", trusted).returncode == 0
