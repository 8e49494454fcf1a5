"""A progress bar for people: only on a terminal, and only where the work takes more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

PATIENCE_S: Final = 1.0
_LOOK_EVERY: Final = 256  # items between two looks at the clock

Item = TypeVar("Item")


def tracked(items: Iterable[Item], *, total: int, title: str) -> Iterator[Item]:
    """The items of `items`, unchanged; after a second a bar on standard error shows how many passed."""
    if not sys.stderr.isatty():
        yield from items
        return
    started = time.monotonic()
    bar = None
    task = None
    try:
        for count, item in enumerate(items):
            yield item
            if count % _LOOK_EVERY:
                continue
            if bar is None and time.monotonic() - started > PATIENCE_S:
                from rich.console import Console
                from rich.progress import Progress

                bar = Progress(console=Console(stderr=True), transient=True)
                bar.start()
                task = bar.add_task(title, total=total)
            if bar is not None and task is not None:
                bar.update(task, completed=count + 1)
    finally:
        if bar is not None:
            bar.stop()
