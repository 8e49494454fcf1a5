"""The command line as a user has it: the installed `aegis`, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
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
