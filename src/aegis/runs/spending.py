"""What each principal spent on models, by day: exact across processes, by compare-and-set."""

from __future__ import annotations

from typing import Final

import orjson

from aegis.core.ports import Clock, Document, Store
from aegis.core.times import MICROS
from aegis.errors import StoreConflict, StoreUnavailable

COLLECTION: Final = "run-spending"
_DAY: Final = 86_400 * MICROS
_ATTEMPTS: Final = 20


def spent(store: Store, clock: Clock, principal: str) -> int:
    """What `principal` spent since midnight UTC, in millionths."""
    with store.reader() as reader:
        found = reader.document(COLLECTION, _key(clock, principal))
    return 0 if found is None else int(orjson.loads(found.body))


def spend(store: Store, clock: Clock, principal: str, cost: int) -> int:
    """Add `cost`; gives back the sum of the day."""
    for _ in range(_ATTEMPTS):
        try:
            with store.transaction() as transaction:
                key = _key(clock, principal)
                found = transaction.document(COLLECTION, key)
                total = cost + (0 if found is None else int(orjson.loads(found.body)))
                version = 1 if found is None else found.version + 1
                transaction.put_document(
                    Document(collection=COLLECTION, key=key, version=version, body=orjson.dumps(total))
                )
                return total
        except StoreConflict:
            continue
    raise StoreUnavailable("the spending of a run could not be recorded")


def _key(clock: Clock, principal: str) -> str:
    return orjson.dumps([clock() // _DAY, principal]).decode()
