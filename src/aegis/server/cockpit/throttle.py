"""How often a password may be tried: each account waits longer after every failure."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from time import monotonic
from typing import Final

from aegis.errors import InvalidCall

FREE: Final = 5  # failures without a wait: people mistype
LONGEST_S: Final = 900.0
REMEMBERED: Final = 10_000  # names with failures: bounds what somebody who makes names up can make us hold
_AT_ONCE: Final = 2  # each check takes 64 MiB and a core for some 50 ms


class Throttle:
    """Failures by account name, in this process."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self.hashing = asyncio.Semaphore(_AT_ONCE)

    def check(self, name: str) -> None:
        """Guarantee that `name` may try now; raises `InvalidCall` (429) with the time to wait."""
        count, until = self._failures.get(name, (0, 0.0))
        left = until - monotonic()
        if count > FREE and left > 0:
            raise InvalidCall(
                "this name was tried too often",
                code="too_many_attempts",
                hint=f"try again in {int(left) + 1} seconds",
                status=429,
            )

    def failed(self, name: str) -> None:
        """Note a failure."""
        count = self._failures.pop(name, (0, 0.0))[0] + 1
        wait = min(2.0 ** max(0, count - FREE), LONGEST_S) if count > FREE else 0.0
        self._failures[name] = (count, monotonic() + wait)
        while len(self._failures) > REMEMBERED:
            self._failures.popitem(last=False)

    def succeeded(self, name: str) -> None:
        """Forget the failures of a name."""
        self._failures.pop(name, None)
