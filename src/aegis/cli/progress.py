"""A progress bar for people: only on a terminal, and only where the work takes more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_S: Final = 1.0

Count = Callable[[int], None]


@contextmanager
def counted(total: int, *, title: str) -> Iterator[Count | None]:
    """Tell the given function how much is done; after a second a bar on standard error shows it."""
    if not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    bars: list[Progress] = []

    def done(count: int) -> None:
        if not bars and time.monotonic() - started > PATIENCE_S:
            from rich.console import Console
            from rich.progress import Progress

            bars.append(Progress(console=Console(stderr=True), transient=True))
            bars[0].start()
            bars[0].add_task(title, total=total)
        if bars:
            bars[0].update(bars[0].task_ids[0], completed=count)

    try:
        yield done
    finally:
        for bar in bars:
            bar.stop()
