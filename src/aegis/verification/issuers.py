"""Keys of other issuers of missions, for a verifier: a JWK set (RFC 7517, RFC 8037) that came another way."""

from __future__ import annotations

from typing import Final

from aegis.core.strict_json import parse
from aegis.errors import InvalidCall, MissionInvalid
from aegis.keys.jws import IssuerKey
from aegis.missions import jws

KEY_BYTES: Final = 32


def read_issuers(data: bytes) -> dict[str, IssuerKey]:
    """The Ed25519 keys of a JWK set by their `kid`; raises `InvalidCall` for anything else.

    A key whose member `iss` names its owner vouches for missions of that issuer alone.
    """
    document = parse(data)
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise InvalidCall("the issuers are not a JWK set")
    found: dict[str, IssuerKey] = {}
    for key in keys:
        described = key if isinstance(key, dict) else {}
        kid, x = described.get("kid"), described.get("x")
        if (described.get("kty"), described.get("crv")) != ("OKP", "Ed25519") or not isinstance(kid, str):
            raise InvalidCall("a key of the issuers is not Ed25519, or has no `kid`")
        try:
            public = jws.decode(x.encode("ascii") if isinstance(x, str) else b"*")
        except (MissionInvalid, UnicodeEncodeError) as error:
            raise InvalidCall("a key of the issuers is not 32 bytes in base64url") from error
        if len(public) != KEY_BYTES or kid in found:
            raise InvalidCall("a key of the issuers is not 32 bytes, or is named twice")
        owner = described.get("iss")
        if owner is not None and not isinstance(owner, str):
            raise InvalidCall("`iss` of a key of the issuers is not text")
        found[kid] = IssuerKey(public, owner)
    return found
