"""Structured logs: one JSON object a line on standard error, without argument values.

Whatever a record carries in `extra` becomes a member; an exception becomes its type and the places
of its traceback, never its message, which may quote what was being handled. A line that nobody reads
holds nothing up.
"""

from __future__ import annotations

import logging
import logging.config
import os
import traceback
from typing import Any, Final

import orjson

from aegis.core.times import rfc3339
from aegis.server.log_lines import LineHandler

_PLAIN: Final = frozenset(
    {*logging.LogRecord("", 0, "", 0, "", None, None).__dict__, "message", "asctime", "taskName", "color_message"}
)
MAX_FRAMES: Final = 20
_STDERR: Final = 2


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": rfc3339(int(record.created * 1e6)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in record.__dict__.items():
            if name not in _PLAIN:
                line[name] = value
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = type(record.exc_info[1]).__qualname__
            line["at"] = [
                f"{frame.filename}:{frame.lineno} in {frame.name}"
                for frame in traceback.extract_tb(record.exc_info[2])[-MAX_FRAMES:]
            ]
        return orjson.dumps(line, default=str).decode()


def configure_logs(level: str = "info") -> None:
    """Send every record of this process through the one formatter, to standard error."""
    handler = LineHandler(_to_stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn.error").setLevel("WARNING")  # its start and stop lines say less than ours


def dropped_lines() -> int:
    """How many log lines of this process nobody read in time."""
    return sum(handler.dropped for handler in logging.getLogger().handlers if isinstance(handler, LineHandler))


def _to_stderr(line: str) -> None:
    """Write past the buffer of `sys.stderr`: who waits inside that holds a lock that the end of Python needs."""
    data = line.encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(_STDERR, data) :]
