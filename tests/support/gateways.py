"""Real gateways in processes of their own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

AEGIS: Final = (str(Path(sys.executable).with_name("aegis")),)
CONFIG: Final = """version: 1
profile: standard
limits: {rate: unlimited}
tools:
  read_file: {risk: low, effects: [read]}
  send_email: {risk: high, irreversible: true, effects: [external_send]}
"""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """A running gateway and the key of its agent `bot`."""

    port: int
    key: str
    home: Path
    process: subprocess.Popen[bytes]


def create_key(home: Path, *roles: str, agent: str | None = None) -> str:
    """A new key with `roles`, made as an operator makes it."""
    command = [*AEGIS, "keys", "create", "--home", str(home)]
    for role in roles:
        command += ["--role", role]
    if agent is not None:
        command += ["--agent", agent]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def start_gateway(home: Path, config: str = CONFIG, *, roles: tuple[str, ...] = ("agent",)) -> Gateway:
    """Start `aegis serve` on a free port and wait until it is ready."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = home / "aegis.yaml"
    file.write_text(config)
    file.chmod(0o600)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    key = create_key(home, *roles, agent="bot")
    process = subprocess.Popen(
        [*AEGIS, "serve", "--config", str(file), "--home", str(home), "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(2_000):
        if process.poll() is not None:
            raise RuntimeError(f"the gateway exited with {process.returncode}")
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as ready,
        ):
            if ready.status == 200:
                return Gateway(port=port, key=key, home=home, process=process)
        time.sleep(0.01)
    process.kill()
    raise RuntimeError("the gateway was not ready in time")
