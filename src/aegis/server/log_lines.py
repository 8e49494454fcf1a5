"""Writing log lines without ever waiting for their reader.

Whoever logs puts a line into a bounded queue; one thread writes it. Where nobody reads the other end of a
pipe, that thread waits and the queue fills; what comes then is dropped and counted, and the count is
written as a line of its own once there is room.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

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
