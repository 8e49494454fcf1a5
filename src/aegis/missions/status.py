"""The tokens of missions: compact JWS, each kind with its own pinned `typ`; what does not hold is `MissionInvalid`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

import msgspec
import orjson

from aegis.core.json import convert, parse
from aegis.core.mission import MAX_SKEW_S, Declaration, Seconds, Text
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall, MissionInvalid, StoreConflict, TokenInvalid
from aegis.keys import jws
from aegis.keys.jws import MAX_CHARS, IssuerFor, IssuerKey, KeyFor, Token, encode, sign
from aegis.log.writer import Unit

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


# Status lists: what an issuer elsewhere says about its missions, signed, and no older than a mission allows.

COLLECTION: Final = "mission_status"
MAX_LISTED: Final = 10_000

Standing = Literal["active", "suspended", "revoked", "unknown"]
Listed = Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_LISTED)]


class StatusList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claims of a status list; what it does not name is active."""

    iss: Text
    reference: Text
    iat: Seconds
    revoked: Listed = ()
    suspended: Listed = ()


def read_status(token: str, issuer_for: IssuerFor, now: int) -> StatusList:
    """The list of a token that its trusted issuer signed by `now` (seconds since the epoch).

    Raises `MissionInvalid` otherwise.
    """
    try:
        listed = convert(verify_issued(token, STATUS, issuer_for), StatusList)
    except msgspec.ValidationError as error:
        raise MissionInvalid("the status list is malformed", member="status") from error
    if listed.iat > now + MAX_SKEW_S:
        raise MissionInvalid("the status list is from the future", member="iat")
    return listed


def publishing(status: StatusList, *, principal: str, receipt_id: str) -> Unit:
    """The unit that puts a list in force; recording it raises `StoreConflict` for one that is not newer."""
    key = _key(status.iss, status.reference)
    body = orjson.dumps({"iat": status.iat, "revoked": status.revoked, "suspended": status.suspended})

    def apply(transaction: Transaction) -> Sequence[Draft]:
        stored = transaction.document(COLLECTION, key)
        if stored is not None and orjson.loads(stored.body)["iat"] >= status.iat:
            raise StoreConflict("a status list that is as new is in force already")
        transaction.put_document(
            Document(
                collection=COLLECTION,
                key=key,
                version=1 if stored is None else stored.version + 1,
                body=body,
            )
        )
        transaction.bump_epoch()
        members = {"kind": "revocation", "receipt_id": receipt_id, "principal": principal, "action": "status"}
        return (Draft(members=members),)

    return Unit(apply=apply)


def standings(reader: Reader, lineage: Sequence[Declaration], now: int) -> list[Standing]:
    """What the lists that missions refer to say about each of a lineage at `now` (seconds since the epoch).

    A list counts where its issuer is the one of the mission that brought the reference into the lineage: whoever is
    delegated to inherits the list, and the word of another issuer is none.
    """
    found: list[Standing] = []
    issuer, above = "", None
    for one in lineage:
        if one.revocation != above:
            issuer, above = one.iss, one.revocation
        found.append(_standing(reader, one, issuer, now))
    return found


def _standing(reader: Reader, declaration: Declaration, issuer: str, now: int) -> Standing:
    reference = declaration.revocation
    if reference is None:
        return "active"
    stored = reader.document(COLLECTION, _key(issuer, reference.reference))
    if stored is None:
        return "unknown"
    body = orjson.loads(stored.body)
    if declaration.mission_id in body["revoked"]:
        return "revoked"
    if declaration.mission_id in body["suspended"]:
        return "suspended"
    return "active" if -MAX_SKEW_S <= now - body["iat"] <= reference.max_age else "unknown"


def _key(issuer: str, reference: str) -> str:
    """The key of a list: two issuers that use one reference keep two lists."""
    return orjson.dumps([issuer, reference]).decode()
