"""The command line as a user has it: the installed `aegis`, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

AEGIS = Path(sys.executable).parent / "aegis"
_OURS = ("AEGIS_URL", "AEGIS_API_KEY", "AEGIS_CONFIG", "AEGIS_HOME", "AEGIS_AGENT")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without anything that Aegis reads, and with `extra`."""
    return {name: value for name, value in os.environ.items() if name not in _OURS} | dict(extra or {})


def aegis(
    *arguments: str | Path, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """One finished run of the command line."""
    return subprocess.run(
        [str(AEGIS), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(env),
        cwd=cwd,
        timeout=120,
        check=False,
    )


def read_json(finished: subprocess.CompletedProcess[str]) -> Any:
    """The one JSON value on standard output."""
    return orjson.loads(finished.stdout)


@dataclass(frozen=True, kw_only=True)
class RunningGateway:
    """A gateway in a process of its own."""

    url: str
    home: Path
    process: subprocess.Popen[str]

    def stop(self) -> int:
        """Send SIGTERM and give back the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def gateway(home: Path, *arguments: str | Path) -> Iterator[RunningGateway]:
    """`aegis serve` over `home` on a free port, from its own word that it is ready to SIGTERM."""
    with subprocess.Popen(
        [str(AEGIS), "serve", "--home", str(home), "--port", "0", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("aegis: ready at "), line
            yield RunningGateway(url=line.split()[3], home=home, process=process)
        finally:
            process.terminate()
            process.wait(30)
