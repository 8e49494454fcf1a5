"""`/healthz`: the process answers. `/readyz`: so do its store, its log and its policy."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from aegis.core.ports import Store
from aegis.errors import InvalidCall, StoreError

FRESH_S: Final = 0.5  # how long one look holds: whoever asks without a credential cannot keep the log busy
TIMEOUT_S: Final = 5.0


class Readiness:
    """Looks at the store and the log at most once in `FRESH_S` seconds, however many ask."""

    def __init__(self, store: Store):
        self._store = store
        self._lock = asyncio.Lock()
        self._until = 0.0
        self._problem = ""

    async def check(self) -> None:
        """Guarantee that the store can be read and the log can be written; raises `InvalidCall` (503)."""
        async with self._lock:
            if monotonic() >= self._until:
                try:
                    self._problem = await asyncio.wait_for(asyncio.to_thread(self._look), TIMEOUT_S)
                except TimeoutError:
                    self._problem = "the store does not answer in time"
                self._until = monotonic() + FRESH_S
        if self._problem:
            raise InvalidCall(self._problem, code="not_ready", hint="try again later", status=503)

    def _look(self) -> str:
        try:
            with self._store.reader() as reader:
                reader.head()
        except StoreError:
            return "the store cannot be read"
        try:
            with self._store.transaction() as transaction:
                transaction.head()
        except StoreError:
            return "the log cannot be written"
        return ""
