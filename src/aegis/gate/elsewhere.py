"""Calls that other processes on the same store let through, for the windows of rates.

The log is what the processes share. A process begins with the newest receipts, and is told by its own
commits where others have written meanwhile; nothing is asked of the store as long as it is alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from aegis.core.ports import Entry, Reader, Store

MAX_RECEIPTS: Final = 20_000  # newest receipts looked at for one span: bounds the work of a process that comes late
MAX_SPANS: Final = 1_000  # spans remembered that nobody has asked for
_PAGE: Final = 256
# Canonical bytes hold a quote of a value only behind a backslash: this is the member of the guard and nothing else.
_COUNTED: Final = b'{"guard":"rate","outcome":"allow"'


class Elsewhere:
    """What the log says of the calls of other processes. One thread takes at a time."""

    def __init__(self, store: Store):
        self._store = store
        self._counted = -1  # the log's size when the first calls were taken
        self._spans: deque[tuple[int, int]] = deque(maxlen=MAX_SPANS)

    @property
    def moved(self) -> bool:
        """Whether there are calls that were not taken."""
        return bool(self._spans) or self._counted < 0

    def written(self, start: int, stop: int) -> None:
        """Another process wrote the leaves from `start` to before `stop`."""
        if self._counted >= 0 and stop > self._counted:
            self._spans.append((max(start, self._counted), stop))

    def take(self, since: int) -> Iterator[tuple[str, int]]:
        """Agents and times of counted calls, not before `since` (microseconds), in order of time.

        Raises `StoreUnavailable`; what was not read then is read the next time.
        """
        with self._store.reader() as reader:
            if self._counted < 0:
                size = reader.head().size
                yield from _counted(reader, 0, size, since)
                self._counted = size
            while self._spans:
                yield from _counted(reader, *self._spans[0], since)
                self._spans.popleft()


def _counted(reader: Reader, start: int, stop: int, since: int) -> Iterator[tuple[str, int]]:
    start = max(start, stop - MAX_RECEIPTS)
    pages: list[list[Entry]] = []
    while stop > start:
        first = max(start, stop - _PAGE)
        page = list(reader.entries(first, stop))
        pages.append(page)
        if not page or page[0].time < since:
            break
        stop = first
    for page in reversed(pages):
        for entry in page:
            if entry.time >= since and entry.kind == "decision" and not entry.parent and _COUNTED in entry.body:
                yield entry.agent, entry.time
