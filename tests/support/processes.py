"""Gateways in processes of their own, for signals, crashes and limits."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aegis.bootstrap.state import open_state
from aegis.detect.rules.cache import default_cache_folder
from support.deployments import TOOLS
from support.served import Credentials
from support.shell import Run

CONFIG = f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}"


@dataclass(frozen=True, kw_only=True)
class Process:
    """A running gateway."""

    home: Path
    port: int
    process: Run
    keys: Mapping[str, str]

    def ask(self, method: str, path: str, body: Any = None, *, key: str = "bot") -> tuple[int, Any]:
        """The status and the parsed body of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request(method, path, data, {"authorization": f"Bearer {self.keys[key]}"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def decide(self, tool: str = "read_file", *, key: str = "bot", **members: Any) -> tuple[int, Any]:
        """One decision."""
        return self.ask("POST", "/v1/decisions", {"tool": tool, "arguments": {}, **members}, key=key)


@contextmanager
def gateway_process(
    home: Path, config: str = CONFIG, *, port: int = 0, log: Path | None = None, workers: int = 1
) -> Iterator[Process]:
    """A gateway on a free port; killed at the end if it still runs.

    Its log lines are on `process.stderr`, which a busy gateway fills, or in the file `log`.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = home / "aegis.yaml"
    file.write_text(config)
    file.chmod(0o600)
    with closing(open_state(file, home)) as state:
        credentials = Credentials(state.store)
        credentials.add("bot", "agent", agent="bot")
        credentials.add("auditor", "auditor")
        credentials.add("admin", "admin")
        credentials.add("other", "agent", agent="other")
    keys = {name: credentials.text(name) for name in credentials.issued}
    words = ("serve", "--config", file, "--home", home, "--port", str(port), "--workers", str(workers))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "XDG_CACHE_HOME": str(default_cache_folder().parents[1])}
    with ExitStack() as stack:
        written = None if log is None else stack.enter_context(log.open("w")).fileno()
        process = stack.enter_context(Run(*words, stderr=written, env=env))
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = line.partition("http://127.0.0.1:")[2].split()
        if not ready:
            raise RuntimeError("" if process.stderr is None else process.stderr.read())
        try:
            yield Process(home=home, port=int(ready[0]), process=process, keys=keys)
        finally:
            if process.poll() is None:
                process.kill()
