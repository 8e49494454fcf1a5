"""Moving the write-ahead log into the file, beside the commits instead of inside them.

Left alone, SQLite does this inside every commit that finds the log long, and that commit waits for
several flushes of the disk. A short-lived thread does it here as soon as enough was written; SQLite's
own threshold stays as a backstop, and then has little left to move.

What is added meanwhile is moved by the commit that follows. Only a log that was moved whole is written
again from its start (https://www.sqlite.org/wal.html, section 2.3), and flushing a file that does not grow
takes half the time: its size and its blocks need not be written as well.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final

from aegis.errors import StoreError
from aegis.stores.sqlite.errors import wrapped

START_PAGES: Final = 1_000  # about 8 MiB
BACKSTOP_PAGES: Final = 8_000  # bounds the log that a crash leaves behind to be read again
_COMMIT_PAGES: Final = 2  # what one commit dirties besides its rows


_log = logging.getLogger("aegis.store")


class Checkpointer:
    """Starts a checkpoint when one is due; one at a time."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]):
        self._connect = connect
        self._nearly = False  # whether all but the newest pages were moved
        self._pages = 0
        self._erasures = 0
        self._cut = 0  # how many erasures the log ahead holds nothing of any more
        self._starting = threading.Lock()  # a thread that does not run yet cannot be waited for
        self._thread: threading.Thread | None = None

    def committed(self, writer: sqlite3.Connection, rows: int, *, erased: bool) -> None:
        """Note a commit of `rows` over `writer`, which is free; starts a checkpoint when one is due, and ends it."""
        self._pages += rows + _COMMIT_PAGES
        self._erasures += erased
        if self._nearly:
            self._finish(writer)
        if self._pages < START_PAGES and not erased:
            return
        if self._thread is not None and self._thread.is_alive():
            return
        with self._starting:
            self._thread = threading.Thread(target=self._run, name="aegis-checkpoint", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is ending: closing the file does what is left
                self._thread = None

    def stop(self) -> None:
        """Wait for a running checkpoint."""
        with self._starting:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        self._pages = 0
        erasures = self._erasures
        try:
            with closing(self._connect()) as connection:
                if erasures == self._cut:
                    _checkpoint(connection, "PASSIVE")
                    self._nearly = True
                # What was erased still stands in the log ahead until that is cut off.
                elif _checkpoint(connection, "TRUNCATE"):
                    self._cut = erasures
        except (StoreError, sqlite3.Error):  # the next commit meets the same fault and reports it
            return

    def _finish(self, writer: sqlite3.Connection) -> None:
        self._nearly = False
        try:
            _checkpoint(writer, "FULL")
        except sqlite3.Error as error:  # what was committed stays so; the next commit meets the fault and reports it
            _log.warning("a checkpoint of the store failed", extra={"error": str(wrapped(error))})


def _checkpoint(connection: sqlite3.Connection, mode: str) -> bool:
    """Whether everything was moved."""
    return not connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()[0]
