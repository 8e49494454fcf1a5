"""Counts over the log, kept as it grows: by time, reason, agent, tool and rule.

Only work for pages: it follows the log while somebody looks, in small steps beside the event loop, and keeps
what it counted in one document, so that a long log is counted once. Decisions never wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Final

import orjson

from aegis.approvals.model import COLLECTION as APPROVALS
from aegis.approvals.model import from_document
from aegis.core.ports import Document, Search
from aegis.errors import StoreConflict, StoreError
from aegis.server.cockpit.tally import Tally
from aegis.server.services import Services

COLLECTION: Final = "cockpit"
KEY: Final = "tally"
WATCHED_S: Final = 600.0  # how long after the last visit the log is still followed
TICK_S: Final = 0.5
STEP: Final = 1_000  # leaves counted at once: bounds how long one step takes from the interpreter
PAUSE_S: Final = 0.02
SAVE_EVERY: Final = 20_000  # leaves between two copies of the counts: what is lost is counted again
MAX_PENDING: Final = 1_000  # held calls that are counted; more are shown as this many

_NOTHING: Final = Search(kind="alarm", before=0, limit=1)

_log = logging.getLogger("aegis.server.cockpit")


class Rollup:
    """The counts of one gateway's log."""

    def __init__(self, services: Services):
        self._services = services
        self._watched = -WATCHED_S
        self._saved = 0
        self._version = 0
        self._loaded = False
        self.tally = Tally()
        self.size = 0
        self.pending = 0

    @property
    def complete(self) -> bool:
        """Whether everything that was in the log at the last look is counted."""
        return self._loaded and self.tally.next >= self.size

    async def watched(self) -> None:
        """Somebody looks: follow the log for a while. The first visit waits for a log that is soon counted."""
        first = monotonic() - self._watched >= WATCHED_S
        self._watched = monotonic()
        if first:
            await asyncio.to_thread(self._count)

    async def follow(self) -> None:
        """Count while somebody looks; runs until it is cancelled."""
        try:
            while True:
                more = False
                if monotonic() - self._watched < WATCHED_S:
                    try:
                        more = await asyncio.to_thread(self._step)
                    except StoreError:
                        _log.warning("the log cannot be counted now, the store does not answer")
                await asyncio.sleep(PAUSE_S if more else TICK_S)
        finally:
            self._save(force=True)

    def _step(self) -> bool:
        """Count the next leaves, and take the store's index a step further; whether there are more."""
        self._count()
        with self._services.store.reader() as reader:
            reader.search(_NOTHING)
        self._save(force=False)
        return self.tally.next < self.size

    def _count(self) -> None:
        """Count the next leaves."""
        if not self._loaded:
            self._load()
        with self._services.store.reader() as reader:
            self.size = reader.head().size
            stop = min(self.size, self.tally.next + STEP)
            for entry in reader.entries(self.tally.next, stop):
                self.tally.add(entry)
            waiting = reader.documents(APPROVALS, state="pending", limit=MAX_PENDING)
        now = self._services.clock()
        self.pending = sum(now < from_document(document).expires_at for document in waiting)

    def _load(self) -> None:
        with self._services.store.reader() as reader:
            document = reader.document(COLLECTION, KEY)
            size = reader.head().size
        if document is not None:
            self._version = document.version
            kept = Tally.decode(orjson.loads(document.body))
            if kept.next <= size:
                self.tally = kept
        self._saved, self._loaded = self.tally.next, True

    def _save(self, *, force: bool) -> None:
        new = self.tally.next - self._saved
        if new == 0 or (new < SAVE_EVERY and not force):
            return
        self._saved = self.tally.next
        body = orjson.dumps(self.tally.encode(), option=orjson.OPT_NON_STR_KEYS)
        try:
            with self._services.store.transaction() as transaction:
                found = transaction.document(COLLECTION, KEY)
                version = 1 if found is None else found.version + 1
                transaction.put_document(Document(collection=COLLECTION, key=KEY, version=version, body=body))
        except (StoreConflict, StoreError):  # these are counts: they can be made again from the log
            _log.debug("the counts were not kept")
