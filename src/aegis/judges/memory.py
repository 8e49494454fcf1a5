"""What judges remember between calls: verdicts that may be used again, and intents that were denied."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from dataclasses import replace
from typing import Final, NamedTuple

from aegis.judges.model import Ran

MAX_VERDICTS: Final = 10_000
MAX_INTENTS: Final = 10_000
PROBING_S: Final = 300.0


class Key(NamedTuple):
    """Everything that a verdict depends on."""

    call_digest: str
    criteria: str
    judge: str
    workspace: str


class Verdicts:
    """Verdicts of well-formed runs, each for the time that its validator allows."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, tuple[float, Ran]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Key) -> Ran | None:
        with self._lock:
            until, ran = self._kept.get(key, (0.0, None))
        return replace(ran, cached=True) if ran is not None and time.monotonic() < until else None

    def keep(self, key: Key, ran: Ran, seconds: int) -> None:
        if seconds <= 0 or ran.result is None:
            return
        with self._lock:
            self._kept[key] = (time.monotonic() + seconds, ran)
            self._kept.move_to_end(key)
            if len(self._kept) > MAX_VERDICTS:
                self._kept.popitem(last=False)


class Denied:
    """Distinct variants of one intent (who, which tool) that judges denied in the last five minutes."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, ...], deque[tuple[float, str]]] = OrderedDict()
        self._lock = threading.Lock()

    def is_probing(self, intent: tuple[str, ...], call_digest: str, bound: int) -> bool:
        """Whether so many others were denied that this one is refused without looking."""
        with self._lock:
            variants = {digest for _, digest in self._recent(intent)}
        return len(variants) >= bound and call_digest not in variants

    def count(self, intent: tuple[str, ...], call_digest: str) -> None:
        with self._lock:
            self._recent(intent).append((time.monotonic(), call_digest))

    def _recent(self, intent: tuple[str, ...]) -> deque[tuple[float, str]]:
        seen = self._seen.setdefault(intent, deque(maxlen=1_000))
        self._seen.move_to_end(intent)
        if len(self._seen) > MAX_INTENTS:
            self._seen.popitem(last=False)
        oldest = time.monotonic() - PROBING_S
        while seen and seen[0][0] < oldest:
            seen.popleft()
        return seen
