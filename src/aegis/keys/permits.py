"""What a permit says, and whether it covers a call: pure checks over a token, keys and a clock (RFC 7519, RFC 8725)."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from aegis.core.canonical import call_digest, canonical
from aegis.core.json import convert
from aegis.core.ports import Clock
from aegis.core.times import MICROS, system_clock
from aegis.errors import PermitInvalid, TokenInvalid
from aegis.keys import jws
from aegis.keys.jws import KeyFor

TYPE: Final = "aegis-permit+jwt"
LIFETIME_S: Final = 60
MAX_SKEW_S: Final = 30  # how far a verifier's clock may be behind the gateway's


class Permit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claims of a permit; `online` ones are redeemed at the gateway alone, `mode` is how the call was decided."""

    sub: str
    aud: str
    tool: str
    server: str | None
    session: str
    call_id: str
    call_digest: str
    decision_id: str
    receipt: int
    mode: str
    online: bool
    jti: str
    iat: int
    exp: int
    approval_id: str | None = None


def read_permit(token: str, key_for: KeyFor) -> Permit:
    """Read the permit that a token is; raises `PermitInvalid` (403) unless a trusted permit key signed it."""
    try:
        return convert(jws.verify(token, TYPE, key_for), Permit)
    except (TokenInvalid, msgspec.ValidationError) as error:
        raise PermitInvalid("this is no permit of this deployment") from error


def check_permit(permit: Permit, *, tool: str, server: str | None, arguments: bytes, now: int) -> None:
    """Guarantee that the permit covers exactly this call at `now` (microseconds since the epoch).

    `arguments` are canonical bytes. Raises `PermitInvalid`: 403 for another call and for a permit of a
    call that was only observed, 409 for one that is over.
    """
    # (1) A permit of a call that nobody would have stopped opens nothing.
    if permit.mode != "enforce":
        raise PermitInvalid("this permit was given while calls were only observed", code="permit_observed")
    # (2) Exactly this call.
    named = (permit.server, permit.tool) == (server, tool)
    if not named or permit.call_digest != call_digest(server=server, tool=tool, arguments=arguments):
        raise PermitInvalid("this permit is for another call", code="permit_other_call")
    # (3) In time.
    seconds = now // MICROS
    if permit.exp <= seconds or permit.exp - permit.iat > LIFETIME_S:
        raise PermitInvalid("this permit is over", code="permit_expired", status=409)
    if permit.iat > seconds + MAX_SKEW_S:
        raise PermitInvalid("this permit is from the future", code="permit_expired", status=409)


# Verifying permits without the gateway: with its public keys, a clock, and a memory of what was seen here.
#
# What is checked is complete but for two things that only the gateway knows: whether another verifier took the
# permit before, and whether its agent was stopped. So a permit opens once per verifier, and one that a person
# approved, or whose call cannot be undone, is refused here: it is redeemed online.

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
        """Do as `redeem`, for event loops; nothing here waits."""
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
