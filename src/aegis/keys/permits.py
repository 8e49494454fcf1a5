"""What a permit says, and whether it covers a call: pure checks over a token, keys and a clock (RFC 7519, RFC 8725)."""

from __future__ import annotations

from typing import Final

import msgspec

from aegis.core.digest import call_digest
from aegis.core.times import MICROS
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
    """The permit that a token is; raises `PermitInvalid` (403) unless a trusted permit key signed it."""
    try:
        return msgspec.convert(jws.verify(token, TYPE, key_for), Permit)
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
