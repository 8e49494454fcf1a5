"""kill -9 in the middle of runs: paused ones wait on, running ones are taken up, and no tool runs twice."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.run_world import call, calls, config, provider, say, write_tools
from support.shell import RunningGateway, aegis, gateway


def ask(running: RunningGateway, method: str, path: str, key: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(running.url).port or 0, timeout=60)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    return json.loads(connection.getresponse().read())


def until(condition: Callable[[], Any]) -> Any:
    """What the condition comes to; the runner's own time-out is the only clock."""
    while not (found := condition()):
        time.sleep(0.02)
    return found


@pytest.mark.slow
def test_no_tool_runs_twice_whatever_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_TEST_KEY", "sk-test-of-runs")
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    command, journal = write_tools(tmp_path)
    with provider() as model:
        file = home / "aegis.yaml"
        # What the user asks for is no matter here: "go" licenses no second tool once a result was read.
        guards = "guards: {dataflow: {mode: off}}"
        routes = "{default: {models: [main], servers: [office]}}"
        file.write_text(config(model.url, command, routes=routes, more=guards))
        file.chmod(0o600)
        bot = aegis("keys", "create", "--role", "agent", "--agent", "bot", "--home", home).stdout.strip()
        ann = aegis("keys", "create", "--role", "approver", "--home", home).stdout.strip()
        opening = {"messages": [{"role": "user", "content": "go"}]}

        # (1) A run waits for a person, another one is inside a tool; then the gateway is killed.
        model.script = [call("send_email", {"to": "a@example.com", "body": "hi"}), say("mailed")]
        with gateway(home) as running:
            paused = ask(running, "POST", "/v1/runs", bot, {**opening, "id": "waits"})
            assert paused["status"] == "paused"
            model.script = [calls(("c1", "read_note", {"name": "a"}), ("c2", "slow", {"seconds": 60})), say("known")]
            started = threading.Thread(target=_ignored, args=(running, bot, {**opening, "id": "works"}), daemon=True)
            started.start()
            until(lambda: "slow" in journal.read_text())
            running.process.kill()
            running.process.wait()

        # (2) The next gateway takes the second run up: what ran is not run again, and the model is told so.
        with gateway(home) as running:
            done = until(lambda: _ended(ask(running, "GET", "/v1/runs/works", bot)))
            assert done["status"] == "completed"
            told = [m["content"] for m in model.seen[-1]["messages"] if m["role"] == "tool"]
            assert "note a" in told[0]
            assert "not known" in told[1]

            # (3) The first one still waits for exactly its call, which runs once.
            model.script = [call("send_email", {"to": "a@example.com", "body": "hi"}), say("mailed")]
            ask(running, "POST", f"/v1/approvals/{paused['approvals'][0]['approval']}", ann, {"decision": "approve"})
            done = until(lambda: _ended(ask(running, "GET", "/v1/runs/waits", bot)))
            assert (done["status"], done["output"]) == ("completed", "mailed")
        assert sorted(journal.read_text().splitlines()) == ["read_note a", "send_email a@example.com hi", "slow"]

    # (4) The log tells it all, and verifies.
    _verify(tmp_path, home)
    told_run = aegis("explain", "works", "--home", home)
    assert told_run.returncode == 0
    assert "read_note" in told_run.stdout
    assert aegis("explain", "nothing-like-it", "--home", home).returncode == 2


RUNS = 24
AT_ONCE = 12


@pytest.mark.slow
def test_many_runs_end_after_a_kill_and_no_tool_runs_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_TEST_KEY", "sk-test-of-runs")
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    command, journal = write_tools(tmp_path)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        """A note of the run's own is read, then the run is over."""
        named = next(message["content"] for message in request["messages"] if message["role"] == "user")
        over = any(message["role"] == "tool" for message in request["messages"])
        message = say("known") if over else call("read_note", {"name": named})
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    with provider() as model:
        monkeypatch.setattr(model, "answer", answer)
        file = home / "aegis.yaml"
        file.write_text(config(model.url, command, routes="{default: {models: [main], servers: [office]}}"))
        file.chmod(0o600)
        bot = aegis("keys", "create", "--role", "agent", "--agent", "bot", "--home", home).stdout.strip()

        def end_of(number: int) -> Any:
            return until(lambda: _ended(ask(running, "GET", f"/v1/runs/run-{number}", bot)))

        def start(number: int) -> Any:
            body = {"id": f"run-{number}", "messages": [{"role": "user", "content": f"n{number}"}]}
            return ask(running, "POST", "/v1/runs", bot, body)

        # (1) Killed while many runs are in the middle of something.
        with gateway(home) as running, ThreadPoolExecutor(AT_ONCE) as clients:
            asked = [clients.submit(start, number) for number in range(RUNS)]
            until(lambda: len(journal.read_text().splitlines()) >= RUNS // 4)
            running.process.kill()
            running.process.wait()
            assert any(one.exception() for one in asked)

        # (2) Clients ask again under the same ids; every run ends.
        with gateway(home) as running:
            for number in range(RUNS):
                start(number)
            assert {end_of(number)["status"] for number in range(RUNS)} == {"completed"}
        done = journal.read_text().splitlines()
        assert len(set(done)) == len(done)
    _verify(tmp_path, home)


def _verify(folder: Path, home: Path) -> None:
    out, keys = folder / "export", folder / "keys.json"
    assert aegis("log", "export", "--out", out, "--home", home).returncode == 0
    keys.write_bytes((out / "keys.json").read_bytes())
    assert aegis("log", "verify", out, "--key", keys).returncode == 0


def _ended(run: Any) -> Any:
    return run if run["status"] in ("completed", "refused") else None


def _ignored(running: RunningGateway, key: str, body: Any) -> None:
    try:
        ask(running, "POST", "/v1/runs", key, body)
    except (OSError, http.client.HTTPException, ValueError):
        return
