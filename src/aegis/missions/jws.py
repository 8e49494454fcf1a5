"""The tokens of missions: compact JWS, each kind with its own pinned `typ`; what does not hold is `MissionInvalid`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from aegis.core.strict_json import parse
from aegis.errors import InvalidCall, MissionInvalid, TokenInvalid
from aegis.keys import jws
from aegis.keys.jws import MAX_CHARS, IssuerFor, IssuerKey, KeyFor, Token, encode, sign

__all__ = [
    "MAX_CHARS",
    "IssuerFor",
    "IssuerKey",
    "KeyFor",
    "Token",
    "check_signature",
    "decode",
    "encode",
    "read_claims",
    "sign",
    "take_apart",
    "typ_of",
    "verify",
    "verify_issued",
]

MISSION: Final = "aegis-mission+jwt"
SESSION_PROOF: Final = "aegis-kb+jwt"
CALL_PROOF: Final = "aegis-call+jwt"
STATUS: Final = "aegis-status+jwt"
PROVENANCE: Final = "aegis-provenance+jwt"
ATTESTATION: Final = "aegis-attestation+jwt"
PROJECTION: Final = "aegis-projection+jwt"


def take_apart(token: str, typ: str) -> Token:
    """The parts of a token of exactly this `typ`; raises `MissionInvalid` for anything else."""
    with _of_missions():
        return jws.take_apart(token, typ)


def typ_of(token: str) -> str:
    """The `typ` that a token claims, for choosing how to check it: nothing of it is believed yet."""
    try:
        header = parse(decode(token.partition(".")[0].encode("ascii", "replace")))
    except InvalidCall as error:
        raise MissionInvalid("the header of the token is not strict JSON", member="header") from error
    typ = header.get("typ") if isinstance(header, dict) else None
    return typ if isinstance(typ, str) else ""


def verify(token: str, typ: str, key_for: KeyFor) -> Any:
    """The claims of a token of `typ` whose key is trusted and whose signature holds; raises `MissionInvalid`."""
    with _of_missions():
        return jws.verify(token, typ, key_for)


def verify_issued(token: str, typ: str, issuer_for: IssuerFor) -> Any:
    """The claims of a token that its issuer signed: `iss` names the owner of the key, and nobody else.

    Raises `MissionInvalid` otherwise, as `verify` does.
    """
    issuer = issuer_for(take_apart(token, typ).kid)
    claims = verify(token, typ, lambda kid: None if issuer is None else issuer.public)
    named = claims.get("iss") if isinstance(claims, dict) else None
    if issuer is not None and issuer.owner is not None and named != issuer.owner:
        raise MissionInvalid(
            "`iss` is not the owner of the key that signed it",
            member="iss",
            hint="the owner of a key is the name that it has in `missions.issuers`",
        )
    return claims


def read_claims(token: Token) -> Any:
    """The claims of a token whose signature nobody checked: good for showing it, and for nothing else."""
    with _of_missions():
        return jws.read_claims(token)


def check_signature(public: bytes, signature: bytes, signed: bytes) -> None:
    """Guarantee that `signature` is by `public` over `signed`; raises `MissionInvalid` otherwise."""
    with _of_missions():
        jws.check_signature(public, signature, signed)


def decode(text: bytes) -> bytes:
    """The bytes of base64url without padding, in its one canonical spelling; raises `MissionInvalid`."""
    with _of_missions():
        return jws.decode(text)


@contextmanager
def _of_missions() -> Iterator[None]:
    try:
        yield
    except TokenInvalid as error:
        raise MissionInvalid(error.message, member=error.member) from error
