"""Lines for the person who started a program: what decides, what did not run, and what to do about it.

Each line is a record of the logger `aegis`. Where the application's logging does not take it, it is a line on standard
error; `AEGIS_QUIET=1` leaves those out. A line names tools, reasons and ids, never the values of arguments.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

QUIET: Final = "AEGIS_QUIET"
_log: Final = logging.getLogger("aegis")


def notice(line: str, *, level: int = logging.WARNING) -> None:
    """Say `line` once: to the application's logging where that takes it, else on standard error."""
    if _log.hasHandlers() and _log.isEnabledFor(level):
        _log.log(level, "%s", line)
    elif os.environ.get(QUIET, "0") in ("", "0") and sys.stderr is not None:
        sys.stderr.write(f"aegis: {line}\n")
