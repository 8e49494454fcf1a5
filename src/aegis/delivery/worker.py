"""The sender: one thread with an event loop of its own, started when there is something to send.

It serves a gateway and an embedded gate alike. What it does not get to, another process or the next start does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from aegis.core.ports import Clock, Store
from aegis.delivery import outbox
from aegis.delivery.message import Message
from aegis.delivery.send import Clients, NotTaken, describe, send
from aegis.errors import StoreConflict, StoreError

LOOK_S: Final = 1.0  # how often the outbox is looked at for what another process left, or what is due again
AT_ONCE: Final = 8  # messages sent at a time
CLOSE_S: Final = 2.0  # how long closing waits for what is under way; its lease ends, and it is sent again
_log = logging.getLogger("aegis.delivery")


class Deliveries:
    """Sends what the outbox of one store holds. Closing waits a little for what is under way, never for a back-off."""

    def __init__(self, store: Store, clock: Clock):
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = 0
        self._stopping: Callable[[], object] | None = None

    def start(self) -> None:
        """Send from now on, and look at once."""
        with self._lock:
            if self._ends.is_set():
                return
            if self._thread is None or self._process != os.getpid():  # first use, or this is a forked child
                self._process, self._wake = os.getpid(), threading.Event()
                self._thread = threading.Thread(target=self._run, name="aegis-delivery", daemon=True)
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """End after what is under way, or without it where a receiver takes longer than `CLOSE_S`."""
        self._ends.set()
        self._wake.set()
        thread = self._thread
        if thread is not None and self._process == os.getpid() and thread is not threading.current_thread():
            thread.join(CLOSE_S)
            stopping = self._stopping
            if thread.is_alive() and stopping is not None:
                with suppress(RuntimeError):  # it ended just now
                    stopping()
                thread.join(CLOSE_S)

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._work())

    async def _work(self) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._stopping = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        clients = Clients()
        try:
            await self._until_closed(clients)
        finally:
            await clients.aclose()

    async def _until_closed(self, clients: Clients) -> None:
        while not self._ends.is_set():
            await asyncio.to_thread(self._wake.wait, LOOK_S)
            self._wake.clear()
            try:
                while batch := await asyncio.to_thread(self._claimed):
                    await asyncio.gather(*(self._send(message, clients) for message in batch))
            except StoreError:  # nothing is lost: the store keeps it
                _log.warning("messages could not be sent, the store does not answer")
            except Exception:  # the next look tries again: one fault must not silence every later message
                _log.exception("messages could not be sent")

    def _claimed(self) -> list[Message]:
        """The next messages, ours to send."""
        now = self._clock()
        found: list[Message] = []
        with self._store.reader() as reader:
            for message in outbox.due(reader, now):
                found.append(message)
                if len(found) == AT_ONCE:
                    break
        claimed: list[Message] = []
        for message in found:
            try:
                with self._store.transaction() as transaction:
                    claimed.append(outbox.claim(transaction, message, now))
            except StoreConflict:  # another process was first
                continue
        return claimed

    async def _send(self, message: Message, clients: Clients) -> None:
        try:
            await send(message, clients, self._clock())
        except NotTaken as error:
            await asyncio.to_thread(self._failed, message, str(error), final=error.final)
        except Exception as error:
            _log.exception("a message could not be made")
            await asyncio.to_thread(self._failed, message, type(error).__name__, final=True)
        else:
            await asyncio.to_thread(self._sent, message)

    def _sent(self, message: Message) -> None:
        with self._store.transaction() as transaction:
            outbox.sent(transaction, message)

    def _failed(self, message: Message, error: str, *, final: bool) -> None:
        try:
            with self._store.transaction() as transaction:
                after = outbox.failed(transaction, message, error=error, final=final, now=self._clock())
        except StoreConflict:
            return
        place = describe(message.target)
        if after.state == "dead":
            _log.error("a message was given up", extra={"message_id": message.id, "target": place, "error": error})
        else:
            _log.warning("a message was not taken", extra={"message_id": message.id, "target": place, "error": error})
