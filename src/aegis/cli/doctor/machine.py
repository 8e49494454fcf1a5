"""The machine: platform, interpreter, pattern engine, clock."""

from __future__ import annotations

import importlib.util
import platform
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from aegis.cli.doctor.model import Found, Patient

SUPPORTED: Final = ("linux", "darwin")
_OLDEST: Final = (3, 11)
# No log of this version can be older: a clock before this was never set.
_NOT_BEFORE_S: Final = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def system(patient: Patient) -> Iterable[Found]:
    """Linux and macOS keep the file modes, locks and sockets that a deployment relies on."""
    del patient
    if sys.platform in SUPPORTED:
        yield Found(check="platform", state="ok", found=f"{platform.system()} {platform.machine()}")
    else:
        yield Found(
            check="platform",
            state="fail",
            found=f"{platform.system()} is not supported",
            hint="use Linux or macOS; on Windows, WSL is Linux",
        )


def interpreter(patient: Patient) -> Iterable[Found]:
    """The Python that runs this."""
    del patient
    version = platform.python_version()
    if sys.version_info >= _OLDEST:
        yield Found(check="python", state="ok", found=version)
    else:
        yield Found(check="python", state="fail", found=version, hint="Python 3.11 or newer is needed")


def pattern_engine(patient: Patient) -> Iterable[Found]:
    """Which engine scans; the results are the same, the time is not."""
    del patient
    if importlib.util.find_spec("hyperscan") is not None:
        yield Found(check="pattern engine", state="ok", found="hyperscan")
    else:
        yield Found(
            check="pattern engine",
            state="warn",
            found="re2, several times slower",
            hint="there are wheels of hyperscan for Linux on x86-64",
        )


def clock(patient: Patient) -> Iterable[Found]:
    """A clock that was never set makes every expiry wrong."""
    del patient
    now = time.time()
    shown = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if now < _NOT_BEFORE_S:
        yield Found(check="clock", state="fail", found=shown, hint="the clock was never set; start a time service")
    else:
        yield Found(check="clock", state="ok", found=shown)
