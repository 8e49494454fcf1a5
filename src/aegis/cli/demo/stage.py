"""What the demonstration stands on: a home of its own, a real gateway in a process of its own, keys."""

from __future__ import annotations

import contextlib
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aegis.cli.remote import Gateway
from aegis.errors import AegisError

AGENT: Final = "demo-agent"
APPROVER: Final = "dana"
PERSON: Final = "demo"  # signs in to the cockpit
_STOP_S: Final = 15


class DemoFailed(AegisError):
    """A part of the demonstration did not start or did not do what it must."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A running gateway, and one credential for each role that the story needs."""

    home: Path
    config: Path
    url: str
    agent_key: str
    approver_key: str
    auditor_key: str
    password: str

    @property
    def gateway(self) -> Gateway:
        return Gateway(url=self.url)


@contextlib.contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """A gateway over a fresh home in `folder`, until the block ends. Raises `DemoFailed`."""
    from aegis.bootstrap.accounts import create_account
    from aegis.bootstrap.credentials import create_key
    from aegis.bootstrap.state import mark_demonstration, open_state
    from aegis.keys.accounts import PERSONAL_ROLES

    home = folder / "home"
    home.mkdir(mode=0o700)
    config = home / "aegis.yaml"
    config.write_bytes(Path(__file__).with_name("demo.yaml").read_bytes())
    config.chmod(0o600)
    with closing(open_state(config, home)) as state:
        agent = create_key(state, roles=("agent",), agent=AGENT, by="demo").text
        approver = create_key(state, roles=("approver",), name=APPROVER, by="demo").text
        auditor = create_key(state, roles=("auditor",), name="auditor", by="demo").text
        password = secrets.token_urlsafe(12)
        create_account(state, PERSON, roles=PERSONAL_ROLES, password=password, by="demo")
        mark_demonstration(state.store)
    with aegis("serve", "--config", str(config), "--home", str(home), "--port", "0", "--log-level", "error") as url:
        yield Stage(
            home=home,
            config=config,
            url=url,
            agent_key=agent,
            approver_key=approver,
            auditor_key=auditor,
            password=password,
        )


@contextlib.contextmanager
def aegis(*words: str) -> Iterator[str]:
    """`aegis serve` in a process of its own; gives its URL once it is ready, and drains it at the end."""
    process = subprocess.Popen([sys.executable, "-m", "aegis.cli", *words], stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        url = next((word for word in line.split() if word.startswith("http")), "")
        if not url:
            raise DemoFailed("the gateway did not start; its words are above")
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()


def run_aegis(*words: str) -> tuple[int, str]:
    """One `aegis` command as a user types it: exit code and standard output."""
    command = [sys.executable, "-m", "aegis.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr
