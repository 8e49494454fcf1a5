"""Moving the write-ahead log into the file, beside the commits instead of inside them.

Left alone, SQLite does this inside every commit that finds the log long, and that commit waits for
several flushes of the disk. A short-lived thread does it here as soon as enough was written; SQLite's
own threshold stays as a backstop, and then has little left to move.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
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
        self._truncate = False
        self._thread: threading.Thread | None = None

    def committed(self, rows: int, *, erased: bool) -> None:
        """Note a commit of `rows`; starts a checkpoint when enough was written or something was erased."""
        self._pages += rows + _COMMIT_PAGES
        self._truncate = self._truncate or erased
        if self._pages < START_PAGES and not self._truncate:
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
        truncate, self._truncate = self._truncate, False
        try:
            connection = self._connect()
        except StoreError:  # the next commit meets the same fault and reports it
            return
        try:
            # What was erased still stands in the log until it is cut off.
            busy = connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if truncate else 'PASSIVE'})").fetchone()[0]
            self._truncate = self._truncate or (truncate and bool(busy))
        except sqlite3.Error:  # as above; nothing is lost, the log stays long
            self._truncate = self._truncate or truncate
        finally:
            connection.close()
