"""Status lists: what an issuer elsewhere says about its missions, signed, and no older than a mission allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
import orjson

from aegis.audit.writer import Unit
from aegis.core.mission import MAX_SKEW_S, Declaration, Seconds, Text
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.errors import MissionInvalid, StoreConflict
from aegis.missions import jws

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


def read_status(token: str, issuer_for: jws.IssuerFor, now: int) -> StatusList:
    """The list of a token that its trusted issuer signed by `now` (seconds since the epoch).

    Raises `MissionInvalid` otherwise.
    """
    try:
        listed = msgspec.convert(jws.verify_issued(token, jws.STATUS, issuer_for), StatusList)
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
