"""Structured logs: one JSON object a line on standard error, without argument values.

Whatever a record carries in `extra` becomes a member; an exception becomes its type and the places
of its traceback, never its message, which may quote what was being handled. A line that nobody reads
holds nothing up.
"""

from __future__ import annotations

import logging
import logging.config
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

import orjson

from aegis.core.times import rfc3339

# Writing log lines without ever waiting for their reader.
#
# Whoever logs puts a line into a bounded queue; one thread writes it. Where nobody reads the other end of a pipe,
# that thread waits and the queue fills; what comes then is dropped and counted, and the count is written as a line
# of its own once there is room.

MAX_LINES: Final = 10_000  # bounds what a reader that sleeps can make us hold in memory
FLUSH_S: Final = 2.0  # how long the end of the process waits for the lines before it

Write = Callable[[str], object]


class LineHandler(logging.Handler):
    """Formats records where they are made, and has `write` called with each line by a thread of its own."""

    def __init__(self, write: Write, *, most: int = MAX_LINES):
        super().__init__()
        self._write = write
        self._lines: queue.Queue[str] = queue.Queue(most)
        self._counting = threading.Lock()
        self._unreported = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="aegis-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take the record; never waits."""
        try:
            self._lines.put_nowait(self.format(record) + "\n")
        except queue.Full:
            with self._counting:
                self.dropped += 1
                self._unreported += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until everything taken so far is written, for `FLUSH_S` at most."""
        until = time.monotonic() + FLUSH_S
        while self._lines.unfinished_tasks and time.monotonic() < until and self._thread.is_alive():
            time.sleep(0.001)

    def _work(self) -> None:
        while True:
            line = self._lines.get()
            try:
                self._write(line)
                if self._unreported:
                    self._write(self.format(self._report()) + "\n")
            except (OSError, ValueError):  # nobody is left to read, and nobody else could be told
                with self._counting:
                    self.dropped += 1
            finally:
                self._lines.task_done()

    def _report(self) -> logging.LogRecord:
        with self._counting:
            count, self._unreported = self._unreported, 0
        record = logging.LogRecord("aegis.server", logging.WARNING, "", 0, "log lines were dropped", None, None)
        record.dropped = count
        return record


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
    """Return how many log lines of this process nobody read in time."""
    return sum(handler.dropped for handler in logging.getLogger().handlers if isinstance(handler, LineHandler))


def _to_stderr(line: str) -> None:
    """Write past the buffer of `sys.stderr`: who waits inside that holds a lock that the end of Python needs."""
    data = line.encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(_STDERR, data) :]
