"""Keys of other issuers of missions, for a verifier: a JWK set (RFC 7517, RFC 8037) that came another way."""

from __future__ import annotations

from typing import Final

from aegis.core.strict_json import parse
from aegis.errors import InvalidCall, MissionInvalid
from aegis.missions import jws

KEY_BYTES: Final = 32


def read_issuers(data: bytes) -> dict[str, bytes]:
    """The Ed25519 keys of a JWK set by their `kid`; raises `InvalidCall` for anything else."""
    document = parse(data)
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise InvalidCall("the issuers are not a JWK set")
    found: dict[str, bytes] = {}
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
        found[kid] = public
    return found
