"""Verifying permits without the gateway: with its public keys, a clock, and a memory of what was seen here.

What is checked is complete but for two things that only the gateway knows: whether another verifier took the
permit before, and whether its agent was stopped. So a permit opens once per verifier, and one that a person
approved, or whose call cannot be undone, is refused here: it is redeemed online.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Mapping
from typing import Any, Final, Literal

from aegis.core.canonical import canonical
from aegis.core.ports import Clock
from aegis.core.times import MICROS, system_clock
from aegis.errors import PermitInvalid
from aegis.keys.permits import check_permit, read_permit

MAX_REMEMBERED: Final = 100_000  # permits of the last minute; a full memory refuses, and forgets nothing too early


class OfflinePermits:
    """Verifies permits against public keys: `keys.json` of a log, or the set of `/.well-known/jwks.json`.

    Args:
        keys: the document; only keys of the purpose `permit` that are in force count.
        clock: microseconds since the epoch.

    Raises `PermitInvalid` where the document holds no such key.
    """

    once: Literal["verifier"] = "verifier"

    def __init__(self, keys: Mapping[str, Any], *, clock: Clock = system_clock):
        self._keys = _permit_keys(keys)
        if not self._keys:
            raise PermitInvalid("the document holds no key that signs permits", code="no_permit_key")
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}

    def redeem(self, permit: str, *, tool: str, arguments: dict[str, Any], server: str | None = None) -> str:
        """Take a permit for exactly this call, once at this verifier; raises `PermitInvalid`."""
        found = read_permit(permit, self._keys.get)
        named = found.server if server is None else server
        now = self._clock()
        check_permit(found, tool=tool, server=named, arguments=canonical(arguments), now=now)
        if found.online:
            raise PermitInvalid(
                "this permit is redeemed at the gateway alone",
                code="permit_online",
                hint="a person approved its call, or the call cannot be undone",
            )
        with self._lock:
            if found.jti in self._seen:
                raise PermitInvalid("this permit was used here before", code="permit_redeemed", status=409)
            if len(self._seen) >= MAX_REMEMBERED:
                self._forget(now // MICROS)
            if len(self._seen) >= MAX_REMEMBERED:
                raise PermitInvalid("too many permits were used within a minute", code="verifier_full", status=409)
            self._seen[found.jti] = found.exp
        return found.jti

    async def aredeem(self, permit: str, *, tool: str, arguments: dict[str, Any], server: str | None = None) -> str:
        """`redeem` for event loops; nothing here waits."""
        return self.redeem(permit, tool=tool, arguments=arguments, server=server)

    def _forget(self, now: int) -> None:
        """Drop what is over: it is refused for its time alone."""
        for permit_id in [permit_id for permit_id, ends in self._seen.items() if ends <= now]:
            del self._seen[permit_id]


def _permit_keys(document: Mapping[str, Any]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for key in document.get("keys", ()):
        if key.get("purpose") != "permit" or "until" in key:
            continue
        text = key.get("public") or str(key.get("x", "")).replace("-", "+").replace("_", "/")
        try:
            found[key["kid"]] = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError, KeyError) as error:
            raise PermitInvalid("a key of the document is malformed", code="no_permit_key") from error
    return found
