"""Status lists: what an issuer elsewhere says about its missions, signed, and no older than a mission allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
import orjson

from aegis.audit.writer import Unit
from aegis.core.mission import Declaration, Seconds, Text
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.errors import MissionInvalid, StoreConflict
from aegis.missions import jws

COLLECTION: Final = "mission_status"
MAX_LISTED: Final = 10_000
_SKEW_S: Final = 60  # how far an issuer's clock may be ahead of ours

Listed = Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_LISTED)]


class StatusList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claims of a status list; what it does not name is active."""

    iss: Text
    reference: Text
    iat: Seconds
    revoked: Listed = ()
    suspended: Listed = ()


def read_status(token: str, key_for: jws.KeyFor) -> StatusList:
    """The list of a token that a trusted issuer signed; raises `MissionInvalid` otherwise."""
    try:
        return msgspec.convert(jws.verify(token, jws.STATUS, key_for), StatusList)
    except msgspec.ValidationError as error:
        raise MissionInvalid("the status list is malformed", member="status") from error


def publishing(status: StatusList, *, principal: str, receipt_id: str) -> Unit:
    """The unit that puts a list in force; recording it raises `StoreConflict` for one that is not newer."""
    body = orjson.dumps(
        {"iat": status.iat, "revoked": status.revoked, "suspended": status.suspended, "iss": status.iss}
    )

    def apply(transaction: Transaction) -> Sequence[Draft]:
        stored = transaction.document(COLLECTION, status.reference)
        if stored is not None and orjson.loads(stored.body)["iat"] >= status.iat:
            raise StoreConflict("a status list that is as new is in force already")
        transaction.put_document(
            Document(
                collection=COLLECTION,
                key=status.reference,
                version=1 if stored is None else stored.version + 1,
                body=body,
            )
        )
        transaction.bump_epoch()
        members = {"kind": "revocation", "receipt_id": receipt_id, "principal": principal, "action": "status"}
        return (Draft(members=members),)

    return Unit(apply=apply)


def standing(
    reader: Reader, declaration: Declaration, now: int
) -> Literal["active", "suspended", "revoked", "unknown"]:
    """What the list that a mission refers to says about it at `now` (seconds since the epoch)."""
    reference = declaration.revocation
    if reference is None:
        return "active"
    stored = reader.document(COLLECTION, reference.reference)
    if stored is None:
        return "unknown"
    body = orjson.loads(stored.body)
    if body["iss"] != declaration.iss:
        return "unknown"
    if declaration.mission_id in body["revoked"]:
        return "revoked"
    if declaration.mission_id in body["suspended"]:
        return "suspended"
    return "active" if -_SKEW_S <= now - body["iat"] <= reference.max_age else "unknown"
