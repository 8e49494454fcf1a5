"""Moving the write-ahead log into the file, beside the commits instead of inside them.

Left alone, SQLite does this inside every commit that finds the log long, and that commit waits for
several flushes of the disk. A short-lived thread does it here as soon as enough was written; SQLite's
own threshold stays as a backstop, and then has little left to move.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final

from aegis.errors import StoreError

START_PAGES: Final = 1_000  # about 4 MiB
BACKSTOP_PAGES: Final = 8_000  # bounds the log that a crash leaves behind to be read again
_COMMIT_PAGES: Final = 4  # what one commit dirties besides its rows


class Checkpointer:
    """Starts a checkpoint when one is due; one at a time."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]):
        self._connect = connect
        self._pages = 0
        self._erasures = 0
        self._cut = 0  # how many erasures the log ahead holds nothing of any more
        self._thread: threading.Thread | None = None

    def committed(self, rows: int, *, erased: bool) -> None:
        """Note a commit of `rows`; starts a checkpoint when enough was written or something was erased."""
        self._pages += rows + _COMMIT_PAGES
        self._erasures += erased
        if self._pages < START_PAGES and not erased:
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._run, name="aegis-checkpoint", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is ending: closing the file does what is left
            self._thread = None

    def stop(self) -> None:
        """Wait for a running checkpoint."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        self._pages = 0
        erasures = self._erasures
        # What was erased still stands in the log ahead until that is cut off.
        mode = "TRUNCATE" if erasures > self._cut else "PASSIVE"
        try:
            with closing(self._connect()) as connection:
                busy = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()[0]
        except (StoreError, sqlite3.Error):  # the next commit meets the same fault and reports it
            return
        if not busy:
            self._cut = erasures
