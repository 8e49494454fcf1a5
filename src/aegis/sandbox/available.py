"""Whether this machine can make sandboxes, and why not."""

from __future__ import annotations

import subprocess
import threading
import time
from typing import Final

from aegis.sandbox.command import command_line, program
from aegis.sandbox.values import Box, Limits

MISSING: Final = "bubblewrap (`bwrap`) is not installed on this machine"
_ASK_AGAIN_S: Final = 60.0  # how long a refusal is believed: an operator may mend it
_PROBE_S: Final = 10.0

_lock = threading.Lock()
_known: dict[str, tuple[str | None, float]] = {}


def unavailable() -> str | None:
    """Why no sandbox can be made here, in one sentence; `None` where one can. Tried once, refusals again."""
    bwrap = program()
    if bwrap is None:
        return MISSING
    with _lock:
        why, until = _known.get(bwrap, (None, 0.0))
        if time.monotonic() < until:
            return why
        why = _probe(bwrap)
        _known[bwrap] = (why, time.monotonic() + (_ASK_AGAIN_S if why else float("inf")))
        return why


def _probe(bwrap: str) -> str | None:
    try:
        tried = subprocess.run(  # noqa: S603 - a fixed program
            command_line(bwrap, Box(), Limits(), ["true"], first=False),
            capture_output=True,
            timeout=_PROBE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot be run on this machine: `{type(error).__name__}`"
    if tried.returncode == 0:
        return None
    words = tried.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"bubblewrap cannot make a sandbox on this machine: `{words[-1][:200] if words else tried.returncode}`"
