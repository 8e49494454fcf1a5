"""Threads that do the same at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


def together(count: int, work: Callable[[], object]) -> None:
    """Have `count` threads do `work`, and wait for the last of them."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
