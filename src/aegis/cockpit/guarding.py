"""What guards the sign-in: requests of other pages refused, the cookie of a session, and how often passwords are tried.

Each name waits longer after every failure, in every process on the store. A try is counted before its password is
looked at, so that tries which run side by side are counted too.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import orjson
from starlette.requests import cookie_parser

from aegis.core.ports import Clock, Document, Store
from aegis.core.times import MICROS
from aegis.errors import InvalidCall

# Whether an unsafe request was sent by a page of this cockpit, told by headers that no other page can set.
#
# Browsers say in `Sec-Fetch-Site` where a request began (W3C Fetch Metadata); older ones, and connections that are
# not secure, send `Origin` alone (RFC 6454). Without either nothing is believed.


def check_origin(headers: Mapping[str, str]) -> None:
    """Guarantee that the request began on a page of this host; raises `InvalidCall` (403) otherwise."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        raise _foreign()
    if origin is not None:
        if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise _foreign()
    elif site is None:
        raise _foreign()


def is_secure(headers: Mapping[str, str], scheme: str) -> bool:
    """Tell whether the browser speaks TLS, to the gateway or to the proxy in front of it."""
    return scheme == "https" or headers.get("origin", "").startswith("https://")


def _foreign() -> InvalidCall:
    return InvalidCall(
        "this did not come from a page of the cockpit",
        code="cross_origin",
        hint="open the page again, and send the form from there",
        status=403,
    )


COOKIE: Final = "aegis_session"
SECURE_COOKIE: Final = "__Host-aegis_session"  # browsers take it over TLS alone, for this host alone


def token_of(headers: Mapping[str, str]) -> str:
    """Return the session's token that the browser shows, or an empty text."""
    cookies: dict[str, str] = cookie_parser(headers.get("cookie", ""))
    return cookies.get(SECURE_COOKIE) or cookies.get(COOKIE, "")


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
    """Return how long after its last try a name with so many failures waits."""
    return 0 if count <= FREE else min(1 << min(count - FREE, 20), LONGEST_S)


def _slot(name: str) -> str:
    """Return where the tries of a name are kept; a name that nobody has looks the same as one that somebody has."""
    return str(int.from_bytes(hashlib.sha256(name.encode(errors="surrogatepass")).digest()[:8]) % SLOTS)
