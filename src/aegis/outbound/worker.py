"""The sender: one thread with an event loop of its own, started when there is something to send.

It serves a gateway and an embedded gate alike. What it does not get to, another process or the next start does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import structs

from aegis.core.ports import Clock, Reader, Store, Transaction
from aegis.core.times import MICROS
from aegis.errors import InvalidCall, StoreConflict, StoreError
from aegis.outbound.send import COLLECTION, Clients, Message, NotTaken, describe, from_document, send, to_document

# The outbox: what is due is claimed by one process, sent, and then gone, due again later, or dead.
#
# Dead messages stay for an operator to look at and to send again.

LEASE_S: Final = 60  # longer than one attempt takes: a process that dies while sending holds nothing up for long
BACK_OFF_S: Final = (2, 10, 60, 300, 1_800, 7_200, 21_600)  # then it is dead: some eight hours after the first time
PAGE: Final = 200


def put(transaction: Transaction, message: Message) -> None:
    """Have a message sent once this transaction is in force."""
    transaction.put_document(to_document(message))


def due(reader: Reader, now: int) -> Iterator[Message]:
    """Messages that are due and that nobody is sending, oldest first."""
    for message in waiting(reader, "due"):
        if message.due_at <= now and message.leased_until <= now:
            yield message


def waiting(reader: Reader, state: str, after: str = "") -> Iterator[Message]:
    """Every message in this state, oldest first, behind the one named `after`."""
    while page := reader.documents(COLLECTION, state=state, after=after, limit=PAGE):
        yield from map(from_document, page)
        after = page[-1].key


def claim(transaction: Transaction, message: Message, now: int) -> Message:
    """The message, ours to send until the lease ends; raises `StoreConflict` where another process has it."""
    stored = _stored(transaction, message.id)
    if stored.version != message.version or stored.state != "due" or stored.leased_until > now:
        raise StoreConflict("another process sends this message")
    return _write(transaction, structs.replace(stored, leased_until=now + LEASE_S * MICROS))


def sent(transaction: Transaction, message: Message) -> None:
    """Forget a message that was taken."""
    if _stored(transaction, message.id).version == message.version:
        transaction.delete_document(COLLECTION, message.id)


def failed(transaction: Transaction, message: Message, *, error: str, final: bool, now: int) -> Message:
    """The message, due again later, or dead where trying again is of no use or was tried often enough.

    Raises `StoreConflict` where another process took it over.
    """
    stored = _stored(transaction, message.id)
    if stored.version != message.version:
        raise StoreConflict("another process sends this message")
    attempts = stored.attempts + 1
    if final or attempts > len(BACK_OFF_S):
        return _write(
            transaction, structs.replace(stored, attempts=attempts, error=error, state="dead", leased_until=0)
        )
    wait = BACK_OFF_S[attempts - 1] * MICROS
    return _write(
        transaction, structs.replace(stored, attempts=attempts, error=error, due_at=now + wait, leased_until=0)
    )


def retry(transaction: Transaction, message_id: str, now: int) -> Message:
    """A dead message, due again from the beginning; raises `InvalidCall` (404, 409)."""
    document = transaction.document(COLLECTION, message_id)
    if document is None:
        raise InvalidCall("there is no such message", code="not_found", status=404)
    message = from_document(document)
    if message.state != "dead":
        raise InvalidCall("this message is not dead", code="conflict", status=409)
    return _write(transaction, structs.replace(message, state="due", attempts=0, due_at=now, error=""))


def _stored(reader: Reader, message_id: str) -> Message:
    document = reader.document(COLLECTION, message_id)
    if document is None:
        raise StoreConflict("the message is gone")
    return from_document(document)


def _write(transaction: Transaction, message: Message) -> Message:
    written = structs.replace(message, version=message.version + 1)
    transaction.put_document(to_document(written))
    return written


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
            for message in due(reader, now):
                found.append(message)
                if len(found) == AT_ONCE:
                    break
        claimed: list[Message] = []
        for message in found:
            try:
                with self._store.transaction() as transaction:
                    claimed.append(claim(transaction, message, now))
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
            sent(transaction, message)

    def _failed(self, message: Message, error: str, *, final: bool) -> None:
        try:
            with self._store.transaction() as transaction:
                after = failed(transaction, message, error=error, final=final, now=self._clock())
        except StoreConflict:
            return
        place = describe(message.target)
        if after.state == "dead":
            _log.error("a message was given up", extra={"message_id": message.id, "target": place, "error": error})
        else:
            _log.warning("a message was not taken", extra={"message_id": message.id, "target": place, "error": error})
