"""Deployments to measure: a fresh home, the profile `standard`, rate limiting off."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from aegis.bootstrap import Deployment, open_deployment

AEGIS = str(Path(sys.executable).with_name("aegis"))
CONFIG = """version: 1
profile: standard
durability: {durability}
limits: {{rate: unlimited}}
tools:
  read_file: {{risk: low, effects: [read]}}
  send_email: {{risk: high, effects: [external_send]}}
policies:
  - name: bounded-paths
    select: {{tool: "read_*"}}
    schema: {{type: object, properties: {{path: {{type: string, maxLength: 4096}}}}}}
"""


def configure(home: Path, durability: str) -> Path:
    """Write the configuration that is measured; the path of the file."""
    return write(home, CONFIG.format(durability=durability))


def write(home: Path, text: str) -> Path:
    """Write a configuration that only its owner can change; the path of the file."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = home / "aegis.yaml"
    file.write_text(text)
    file.chmod(0o600)
    return file


@contextlib.contextmanager
def embedded(home: Path, durability: str) -> Iterator[Deployment]:
    """A gate in this process."""
    deployment = open_deployment(configure(home, durability), home, agent="bench")
    try:
        yield deployment
    finally:
        deployment.close()


@contextlib.contextmanager
def gateway(home: Path, durability: str = "fsync") -> Iterator[tuple[str, int, str, int]]:
    """A gateway in a process of its own: host, port, an agent's key, process id."""
    with running(home, CONFIG.format(durability=durability)) as found:
        yield found


@contextlib.contextmanager
def running(home: Path, text: str) -> Iterator[tuple[str, int, str, int]]:
    """A gateway with the configuration `text`: host, port, an agent's key, process id."""
    config = write(home, text)
    key = made_key(home, "agent")
    with serving(config, home) as (port, process):
        yield "127.0.0.1", port, key, process.pid


def made_key(home: Path, role: str, agent: str = "bench") -> str:
    """A new key of the home, of that agent; its configuration stands there already."""
    words = ["keys", "create", "--role", role, "--home", str(home), "--config", str(home / "aegis.yaml")]
    named = ["--agent", agent] if role == "agent" else []
    return subprocess.run([AEGIS, *words, *named], check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def serving(config: Path, home: Path, workers: int = 1) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A gateway over a home that is there: its port and its process, which may be killed meanwhile."""
    port = free_port()
    process = subprocess.Popen(
        [AEGIS, "serve", "--config", str(config), "--home", str(home), "--port", str(port), "--workers", str(workers)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_ready(port, process, 120)
        yield port, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def wait_ready(port: int, process: subprocess.Popen[bytes], seconds: float = 20.0) -> float:
    """Wait until `/readyz` answers 200; how many seconds that took."""
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        if process.poll() is not None:
            raise RuntimeError(f"the gateway exited with {process.returncode}")
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer,
        ):
            if answer.status == 200:
                return time.perf_counter() - start
        time.sleep(0.005)
    raise RuntimeError("the gateway was not ready in time")


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def resident_mib(pid: int | None = None) -> float:
    """Resident memory of a process, in MiB (Linux)."""
    pages = int(Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far, in seconds (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
