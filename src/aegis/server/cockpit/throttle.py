"""How often a password may be tried: each name waits longer after every failure, in every process on the store.

A try is counted before its password is looked at, so that tries which run side by side are counted too.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

import orjson

from aegis.core.ports import Clock, Document, Store
from aegis.core.times import MICROS
from aegis.errors import InvalidCall

COLLECTION: Final = "sign_in_tries"
FREE: Final = 5  # failures without a wait: people mistype
LONGEST_S: Final = 900
FORGOTTEN_S: Final = 24 * 3600  # a name that was not tried for so long begins anew
SLOTS: Final = 16_384  # names share these, known or not: bounds what somebody who makes names up can make us keep
_AT_ONCE: Final = 2  # each check takes 64 MiB and a core for some 50 ms


class Throttle:
    """Tries by account name, kept in the store; times are those of its clock."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.hashing = asyncio.Semaphore(_AT_ONCE)

    def attempt(self, name: str) -> None:
        """Count a try of `name`, which stands unless it succeeds; raises `InvalidCall` (429) with the time to wait."""
        key = _slot(name)
        with self._store.transaction() as transaction:
            now = self._clock()
            found = transaction.document(COLLECTION, key)
            count, last = (0, now) if found is None else orjson.loads(found.body)
            # A clock that went back makes nobody wait longer than the longest wait.
            since = max(0, now - last)
            if since >= FORGOTTEN_S * MICROS:
                count = 0
            left = _wait_s(count) - since // MICROS
            if left > 0:
                raise InvalidCall(
                    "this name was tried too often",
                    code="too_many_attempts",
                    hint=f"try again in {left} seconds",
                    status=429,
                )
            body = orjson.dumps([count + 1, now])
            version = 1 if found is None else found.version + 1
            transaction.put_document(Document(collection=COLLECTION, key=key, version=version, body=body))

    def succeeded(self, name: str) -> None:
        """Forget the tries of a name."""
        with self._store.transaction() as transaction:
            transaction.delete_document(COLLECTION, _slot(name))


def _wait_s(count: int) -> int:
    """How long after its last try a name with so many failures waits."""
    return 0 if count <= FREE else min(1 << min(count - FREE, 20), LONGEST_S)


def _slot(name: str) -> str:
    """Where the tries of a name are kept; a name that nobody has looks the same as one that somebody has."""
    return str(int.from_bytes(hashlib.sha256(name.encode(errors="surrogatepass")).digest()[:8]) % SLOTS)
