"""The outbox: what is due is claimed by one process, sent, and then gone, due again later, or dead.

Dead messages stay for an operator to look at and to send again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from aegis.core.ports import Reader, Transaction
from aegis.core.times import MICROS
from aegis.delivery.message import COLLECTION, Message, from_document, to_document
from aegis.errors import InvalidCall, StoreConflict

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
    return _write(transaction, replace(stored, leased_until=now + LEASE_S * MICROS))


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
        return _write(transaction, replace(stored, attempts=attempts, error=error, state="dead", leased_until=0))
    wait = BACK_OFF_S[attempts - 1] * MICROS
    return _write(transaction, replace(stored, attempts=attempts, error=error, due_at=now + wait, leased_until=0))


def retry(transaction: Transaction, message_id: str, now: int) -> Message:
    """A dead message, due again from the beginning; raises `InvalidCall` (404, 409)."""
    document = transaction.document(COLLECTION, message_id)
    if document is None:
        raise InvalidCall("there is no such message", code="not_found", status=404)
    message = from_document(document)
    if message.state != "dead":
        raise InvalidCall("this message is not dead", code="conflict", status=409)
    return _write(transaction, replace(message, state="due", attempts=0, due_at=now, error=""))


def _stored(reader: Reader, message_id: str) -> Message:
    document = reader.document(COLLECTION, message_id)
    if document is None:
        raise StoreConflict("the message is gone")
    return from_document(document)


def _write(transaction: Transaction, message: Message) -> Message:
    written = replace(message, version=message.version + 1)
    transaction.put_document(to_document(written))
    return written
