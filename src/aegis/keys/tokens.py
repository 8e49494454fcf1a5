"""Secrets that a person's browser shows: sessions of the cockpit and one-time links; the store keeps hashes."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from aegis.core.ports import Document, Reader, Transaction
from aegis.core.times import MICROS
from aegis.errors import StoreConflict, StoreCorrupt
from aegis.keys.accounts import Account, find_account

SESSIONS: Final = "cockpit_sessions"
LINKS: Final = "account_links"
SESSION_S: Final = 12 * 3600  # a working day; then the password is asked for again
IDLE_S: Final = 3600
TOUCH_S: Final = 300  # how exactly the last use is known: bounds the writes of a session
LINK_S: Final = 24 * 3600
MAX_TOKEN_CHARS: Final = 64
_BYTES: Final = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedIn:
    """One session of a person; `expires_at` is when it ends if it is not used any more."""

    key: str
    account: Account
    created_at: int
    seen_at: int
    version: int

    @property
    def expires_at(self) -> int:
        """Microseconds since the epoch."""
        return min(self.created_at + SESSION_S * MICROS, self.seen_at + IDLE_S * MICROS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A one-time link: for the first account (`account` is empty), or for a new password of one."""

    key: str
    account: str
    expires_at: int


def new_session(transaction: Transaction, account: Account, *, now: int) -> str:
    """Make the token of a new session of `account`; it exists nowhere else."""
    _forget_ended(transaction, SESSIONS, now)
    return _put(
        transaction,
        SESSIONS,
        {"account": account.name, "generation": account.generation, "created_at": now, "seen_at": now},
    )


def find_session(reader: Reader, token: str, *, now: int) -> SignedIn | None:
    """Find the session of a token, or `None` where it ended, or its account changed or was disabled."""
    key = _key(token)
    document = None if key is None else reader.document(SESSIONS, key)
    if document is None:
        return None
    body = _body(document)
    account = find_account(reader, body["account"])
    if account is None or account.state != "active" or account.generation != body["generation"]:
        return None
    found = SignedIn(
        key=document.key,
        account=account,
        created_at=body["created_at"],
        seen_at=body["seen_at"],
        version=document.version,
    )
    return found if now < found.expires_at else None


def touch_session(transaction: Transaction, session: SignedIn, *, now: int) -> None:
    """Note that a session is in use; another request that did so first is as good."""
    document = transaction.document(SESSIONS, session.key)
    if document is None or document.version != session.version:
        return
    body = _body(document) | {"seen_at": now}
    transaction.put_document(
        Document(
            collection=SESSIONS, key=session.key, version=session.version + 1, body=orjson.dumps(body), state="open"
        )
    )


def end_session(transaction: Transaction, session: SignedIn) -> None:
    """End a session for every process."""
    transaction.delete_document(SESSIONS, session.key)


def new_link(transaction: Transaction, account: str, *, now: int) -> str:
    """Make the token of a new one-time link."""
    _forget_ended(transaction, LINKS, now)
    return _put(transaction, LINKS, {"account": account, "expires_at": now + LINK_S * MICROS})


def find_link(reader: Reader, token: str, *, now: int) -> Link | None:
    """Find the link of a token, or `None` where it was used or has expired."""
    key = _key(token)
    document = None if key is None else reader.document(LINKS, key)
    if document is None:
        return None
    body = _body(document)
    link = Link(key=document.key, account=body["account"], expires_at=body["expires_at"])
    return link if now < link.expires_at else None


def use_link(transaction: Transaction, link: Link) -> None:
    """Use a link up; raises `StoreConflict` where somebody else did."""
    if transaction.document(LINKS, link.key) is None:
        raise StoreConflict("the link was used meanwhile")
    transaction.delete_document(LINKS, link.key)


def _put(transaction: Transaction, collection: str, body: Mapping[str, Any]) -> str:
    token = secrets.token_urlsafe(_BYTES)
    transaction.put_document(
        Document(collection=collection, key=_hash(token), version=1, body=orjson.dumps(body), state="open")
    )
    return token


def _forget_ended(transaction: Transaction, collection: str, now: int) -> None:
    """Delete what has ended, so that the collection stays as small as what is in use."""
    for document in transaction.documents(collection, limit=200):
        body = _body(document)
        if now >= body.get("expires_at", body.get("seen_at", 0) + IDLE_S * MICROS):
            transaction.delete_document(collection, document.key)


def _key(token: str) -> str | None:
    return _hash(token) if token and len(token) <= MAX_TOKEN_CHARS and token.isascii() else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _body(document: Document) -> dict[str, Any]:
    try:
        body: dict[str, Any] = orjson.loads(document.body)
    except ValueError as error:
        raise StoreCorrupt("the record of a session is damaged") from error
    return body
