"""Compact JWS (RFC 7515) with Ed25519 alone (RFC 8037); every kind of token has its own pinned `typ`.

`none`, HMAC, RSA, `crit`, embedded keys and other header members are refused before any signature is
looked at, so that a token never chooses how it is verified (RFC 8725).
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from aegis.core import ed25519
from aegis.core.json import parse
from aegis.core.ports import Signer
from aegis.errors import InvalidCall, SignatureInvalid, TokenInvalid

MAX_CHARS: Final = 262_144  # a token is decoded before it is believed: bounds that work
ALGORITHM: Final = "EdDSA"
_USUAL_HEADER: Final = 512  # longer headers are read again each time: bounds what is remembered
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")

# The public key (32 bytes) that a key id of a token stands for; `None` where nobody trusts it.
KeyFor = Callable[[str], bytes | None]


class IssuerKey(NamedTuple):
    """A key whose word counts, and whose it is; `owner` is `None` where it signs for whoever asked this deployment."""

    public: bytes
    owner: str | None


# The key that a key id of a token stands for, with its owner; `None` where nobody trusts it.
IssuerFor = Callable[[str], IssuerKey | None]


class Token(NamedTuple):
    """A token taken apart and not yet believed."""

    kid: str
    body: bytes
    signed: bytes
    signature: bytes


def sign(signer: Signer, typ: str, claims: bytes) -> str:
    """Make the compact JWS of `typ` over the JSON bytes `claims`."""
    header = orjson.dumps({"alg": ALGORITHM, "kid": signer.kid, "typ": typ})
    signed = encode(header) + b"." + encode(claims)
    return (signed + b"." + encode(signer.sign(signed))).decode("ascii")


def take_apart(token: str, typ: str) -> Token:
    """Take apart a token of exactly this `typ`; raises `TokenInvalid` for anything else."""
    if len(token) > MAX_CHARS or not token.isascii():
        raise TokenInvalid("the token is too long or holds other characters than base64url", member="token")
    data = token.encode("ascii")
    parts = data.split(b".")
    if len(parts) != 3:
        raise TokenInvalid("the token is not a compact JWS: three parts, divided by `.`", member="token")
    kid = _kid(parts[0], typ) if len(parts[0]) <= _USUAL_HEADER else _kid.__wrapped__(parts[0], typ)
    return Token(kid, decode(parts[1]), data[: len(parts[0]) + 1 + len(parts[1])], decode(parts[2]))


@lru_cache(maxsize=1_024)
def _kid(part: bytes, typ: str) -> str:
    """Read the key id of a header of exactly this `typ`; raises as `take_apart`. A client sends the same every time."""
    header = _json(decode(part), "header")
    if not isinstance(header, dict):
        raise TokenInvalid("the header is not an object", member="header")
    if header.get("alg") != ALGORITHM:
        raise TokenInvalid(f"the algorithm is not `{ALGORITHM}`", member="alg")
    if header.get("typ") != typ:
        raise TokenInvalid(f"the token is not of type `{typ}`", member="typ")
    if header.keys() != {"alg", "kid", "typ"} or not isinstance(header["kid"], str):
        raise TokenInvalid("the header has other members than `alg`, `kid` and `typ`", member="header")
    kid: str = header["kid"]
    return kid


def verify(token: str, typ: str, key_for: KeyFor) -> Any:
    """Read the claims of a token of `typ` whose key is trusted and whose signature holds.

    Raises `TokenInvalid` otherwise.
    """
    taken = take_apart(token, typ)
    public = key_for(taken.kid)
    if public is None:
        raise TokenInvalid("the token is signed by a key that is not trusted here", member="kid")
    check_signature(public, taken.signature, taken.signed)
    return _json(taken.body, "claims")


def read_claims(token: Token) -> Any:
    """Read the claims of a token whose signature nobody checked: good for showing it, and for nothing else."""
    return _json(token.body, "claims")


def check_signature(public: bytes, signature: bytes, signed: bytes) -> None:
    """Guarantee that `signature` is by `public` over `signed`; raises `TokenInvalid` otherwise."""
    try:
        ed25519.verify(public, signature, signed)
    except SignatureInvalid as error:
        raise TokenInvalid("the signature does not hold", member="signature") from error


def encode(data: bytes) -> bytes:
    """Encode as base64url without padding."""
    return binascii.b2a_base64(data, newline=False).translate(_TO_URL, b"=")


def decode(text: bytes) -> bytes:
    """Decode the bytes of base64url without padding, in its one canonical spelling."""
    try:
        data = binascii.a2b_base64(text.translate(_FROM_URL) + b"=" * (-len(text) % 4), strict_mode=True)
    except ValueError as error:
        raise TokenInvalid("a part of the token is not base64url", member="token") from error
    if encode(data) != text:
        raise TokenInvalid("a part of the token is not in its canonical spelling", member="token")
    return data


def _json(data: bytes, what: str) -> Any:
    try:
        return parse(data)
    except InvalidCall as error:
        raise TokenInvalid(f"the {what} of the token is not strict JSON", member=what) from error
