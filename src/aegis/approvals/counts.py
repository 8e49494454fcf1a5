"""What is counted about approvals: calls that wait, by principal, and answers of the last hour, by person.

Counts change in the transaction of what they count, so that several processes share them exactly.
"""

from __future__ import annotations

from typing import Final

import orjson

from aegis.core.ports import Document, Transaction
from aegis.core.times import MICROS
from aegis.errors import InvalidCall, StoreConflict
from aegis.facts.fold import name_skeleton

PENDING: Final = "approvals_pending"
ANSWERS: Final = "approver_answers"
HOUR_S: Final = 3_600


class TooManyPending(StoreConflict):
    """As many calls of this principal wait for people as may."""


def check_room(transaction: Transaction, principal: str, limit: int) -> None:
    """Guarantee that one more call of `principal` may wait; raises `TooManyPending` otherwise."""
    if _count(transaction, principal)[0] >= limit:
        raise TooManyPending("too many calls of this principal wait for an approval")


def count_pending(transaction: Transaction, principal: str, change: int) -> None:
    """Count one call of `principal` more (1) or less (-1) that waits."""
    count, version = _count(transaction, principal)
    body = orjson.dumps(max(0, count + change))
    transaction.put_document(Document(collection=PENDING, key=principal, version=version + 1, body=body))


def check_hour(transaction: Transaction, person: str, limit: int | None, now: int) -> None:
    """Guarantee that `person` may approve one more call this hour; raises `InvalidCall` (429) otherwise."""
    if limit is None:
        return
    recent, _ = _answers(transaction, person, now)
    if len(recent) >= limit:
        raise InvalidCall(
            f"you approved {limit} calls within an hour, which is as many as one person may",
            code="approver_limit",
            hint="the call waits for somebody else, or for you to come back later",
            status=429,
        )


def count_answer(transaction: Transaction, person: str, now: int) -> None:
    """Count one approval that `person` gave."""
    recent, version = _answers(transaction, person, now)
    body = orjson.dumps([*recent, now // MICROS])
    transaction.put_document(Document(collection=ANSWERS, key=name_skeleton(person), version=version + 1, body=body))


def _count(transaction: Transaction, principal: str) -> tuple[int, int]:
    document = transaction.document(PENDING, principal)
    return (0, 0) if document is None else (orjson.loads(document.body), document.version)


def _answers(transaction: Transaction, person: str, now: int) -> tuple[list[int], int]:
    """When `person` approved within the last hour, and the version of that record."""
    document = transaction.document(ANSWERS, name_skeleton(person))  # names that look alike are one person's
    if document is None:
        return [], 0
    since = now // MICROS - HOUR_S
    return [at for at in orjson.loads(document.body) if at > since], document.version
