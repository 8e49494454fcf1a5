"""Permits: short-lived, signed, for exactly one call; a compact JWS (RFC 7515, EdDSA)."""

from __future__ import annotations

import base64
from typing import Any, Final

import orjson

from aegis.core.ports import Signer
from aegis.core.times import MICROS

TYPE: Final = "aegis-permit+jwt"
LIFETIME_S: Final = 60


def mint(signer: Signer, *, now: int, permit_id: str, claims: dict[str, Any]) -> str:
    """A permit over `claims`, valid for `LIFETIME_S` seconds from `now` (microseconds since the epoch)."""
    issued = now // MICROS
    header = {"alg": "EdDSA", "kid": signer.kid, "typ": TYPE}
    body = {**claims, "jti": permit_id, "iat": issued, "exp": issued + LIFETIME_S}
    signed = _part(orjson.dumps(header)) + b"." + _part(orjson.dumps(body))
    return (signed + b"." + _part(signer.sign(signed))).decode()


def _part(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
