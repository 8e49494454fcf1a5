"""Noticing that the configuration file, or a file that it draws in, changed: by asking for their status."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event, Thread
from typing import Final

DEFAULT_SECONDS: Final = 1.0

_Status = tuple[int, int, int, int, int, int]
_Print = tuple[_Status, tuple[tuple[str, _Status | None], ...]] | None


class FileWatch:
    """Calls `changed` once the file was changed and has then stayed the same for one interval.

    A file that is gone is not a change: the configuration in force stays. `drawn_in` says which other
    files belong to it; one of them that comes or goes is a change. `changed` runs in the thread of the
    watch and must not raise.
    """

    def __init__(
        self,
        path: Path,
        changed: Callable[[], None],
        *,
        drawn_in: Callable[[], Iterable[Path]] = tuple,
        seconds: float = DEFAULT_SECONDS,
    ):
        self._path = path
        self._drawn_in = drawn_in
        self._changed = changed
        self._seconds = seconds
        self._seen = self._print()
        self._pending: _Print = self._seen
        self._stop = Event()
        self._thread = Thread(target=self._run, name="aegis-config-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End watching; returns when `changed` is no longer running."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> bool:
        """One look at the file; whether `changed` was called."""
        now = self._print()
        settled = now == self._pending
        self._pending = now
        # A file that is still being written is read when it has come to rest.
        if now is None or now == self._seen or not settled:
            return False
        self._seen = now
        self._changed()
        return True

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            self.look()

    def _print(self) -> _Print:
        status = _status(self._path)
        return None if status is None else (status, tuple((str(path), _status(path)) for path in self._drawn_in()))


def _status(path: Path) -> _Status | None:
    try:
        status = path.stat()
    except OSError:
        return None
    # Who may write a file decides whether it is taken, so giving it the right mode is a change as well.
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode, status.st_uid
