"""One message to one receiver, as the outbox keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from aegis.core.ports import Document
from aegis.errors import StoreCorrupt

COLLECTION: Final = "deliveries"

Kind = Literal["webhook", "slack", "email"]
State = Literal["due", "dead"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where a message goes. `url` and `secret` may be references, which are resolved when it is sent.

    `private` names hosts that may have private addresses. Of mail, `url` is its server, `secret` the password,
    `sender` and `to` are addresses.
    """

    kind: Kind
    url: str
    secret: str = ""
    private: tuple[str, ...] = ()
    sender: str = ""
    to: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message: what happened (`event`), a line for people (`text`), a link without authority, and the data.

    Times are microseconds since the epoch. `leased_until` keeps a second process away while one sends.
    """

    id: str
    target: Target
    event: str
    text: str
    link: str
    data: dict[str, Any]
    created_at: int
    due_at: int
    attempts: int = 0
    leased_until: int = 0
    error: str = ""
    state: State = "due"
    version: int = 1


def to_document(message: Message) -> Document:
    """The stored form."""
    return Document(
        collection=COLLECTION,
        key=message.id,
        version=message.version,
        state=message.state,
        body=msgspec.json.encode(message),
    )


def from_document(document: Document) -> Message:
    """The message that a document holds; raises `StoreCorrupt` for anything else."""
    try:
        return msgspec.json.decode(document.body, type=Message)
    except msgspec.DecodeError as error:
        raise StoreCorrupt("the record of a message is damaged") from error
