"""Structured logs: one JSON object a line on standard error, without argument values.

Whatever a record carries in `extra` becomes a member; an exception becomes its type and the places
of its traceback, never its message, which may quote what was being handled.
"""

from __future__ import annotations

import logging
import logging.config
import sys
import traceback
from typing import Any, Final

import orjson

from aegis.core.times import rfc3339

_PLAIN: Final = frozenset(
    {*logging.LogRecord("", 0, "", 0, "", None, None).__dict__, "message", "asctime", "taskName", "color_message"}
)
MAX_FRAMES: Final = 20


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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn.error").setLevel("WARNING")  # its start and stop lines say less than ours
