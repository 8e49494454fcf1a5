"""Accounts: people who sign in to the cockpit, and their browsers' sessions.

A password is kept as its Argon2id hash (RFC 9106).

A person's principal is the account's name, the same party as API keys of that name.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson
from msgspec import Struct

from aegis.core.outcome import Role
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.principal import Principal
from aegis.core.times import MICROS
from aegis.errors import AegisError, InvalidCall, StoreConflict, StoreCorrupt

if TYPE_CHECKING:
    from argon2 import PasswordHasher


COLLECTION: Final = "accounts"
PERSONAL_ROLES: Final[tuple[Role, ...]] = ("approver", "auditor", "issuer", "admin")
MAX_NAME_CHARS: Final = 64
MIN_PASSWORD_CHARS: Final = 12  # NIST SP 800-63B asks for at least 8; nothing else is demanded of a password
MAX_PASSWORD_CHARS: Final = 256  # a password is hashed before its owner is known: bounds that work
_NAME_MARKS: Final = frozenset("-_.@")

State = Literal["active", "disabled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """One person. `generation` counts changes that end every session of the account."""

    name: str
    roles: tuple[Role, ...]
    created_at: int
    password: str = field(repr=False)
    state: State = "active"
    generation: int = 1
    version: int = 1

    @property
    def principal(self) -> Principal:
        """Who this person is to every endpoint."""
        return Principal(id=self.name, roles=frozenset(self.roles))


def check_name(name: str) -> str:
    """Check the name of an account; raises `InvalidCall` for one that could be taken for another kind of holder."""
    plain = name.isascii() and all(mark.isalnum() or mark in _NAME_MARKS for mark in name)
    if not plain or not 1 <= len(name) <= MAX_NAME_CHARS or not name[0].isalnum():
        raise InvalidCall(
            f"a name has 1 to {MAX_NAME_CHARS} letters, digits, `-`, `_`, `.` or `@`, a letter or digit first",
            code="name",
        )
    return name


def check_roles(roles: Sequence[str]) -> tuple[Role, ...]:
    """Check the roles of a person, each once; raises `InvalidCall` for none, or one that people do not have."""
    if not roles or not set(roles) <= set(PERSONAL_ROLES):
        raise InvalidCall(f"a person needs roles, each one of {', '.join(PERSONAL_ROLES)}", code="role")
    return tuple(role for role in PERSONAL_ROLES if role in roles)


def hash_password(password: str) -> str:
    """Compute the Argon2id hash to keep; raises `InvalidCall` for a password that is too short or too long."""
    if not MIN_PASSWORD_CHARS <= len(password) <= MAX_PASSWORD_CHARS:
        raise InvalidCall(
            f"a password has {MIN_PASSWORD_CHARS} to {MAX_PASSWORD_CHARS} characters",
            code="password",
            hint="several words are easier to remember than signs",
        )
    return _hasher().hash(password)


def password_matches(account: Account | None, password: str) -> bool:
    """Tell whether `password` is the account's; costs the same where there is no such account."""
    from argon2.exceptions import InvalidHashError, VerificationError

    stored = _decoy() if account is None or account.state != "active" else account.password
    try:
        matches = _hasher().verify(stored, password[: MAX_PASSWORD_CHARS + 1])
    except (VerificationError, InvalidHashError):
        return False
    return matches and account is not None and account.state == "active"


def new_account(name: str, roles: Sequence[str], password: str, *, now: int) -> Account:
    """Make an account that no store knows yet; raises `InvalidCall`."""
    return Account(name=check_name(name), roles=check_roles(roles), password=hash_password(password), created_at=now)


def add_account(transaction: Transaction, account: Account) -> None:
    """Write a new account; raises `InvalidCall` (409) where the name is taken."""
    if transaction.document(COLLECTION, account.name) is not None:
        raise InvalidCall("there is an account of this name", code="conflict", status=409)
    transaction.put_document(_to_document(account))


def change_account(
    transaction: Transaction,
    name: str,
    *,
    password: str | None = None,
    roles: tuple[Role, ...] | None = None,
    state: State | None = None,
) -> Account:
    """Write what changed of an account, end every session of it, and have its standing looked up again.

    `password` is a hash.

    Raises `InvalidCall` (404) where there is no such account.
    """
    found = find_account(transaction, name)
    if found is None:
        raise InvalidCall("there is no such account", code="not_found", status=404)
    changed = replace(
        found,
        password=found.password if password is None else password,
        roles=found.roles if roles is None else roles,
        state=found.state if state is None else state,
        generation=found.generation + 1,
        version=found.version + 1,
    )
    transaction.put_document(_to_document(changed))
    transaction.bump_epoch()
    return changed


def find_account(reader: Reader, name: str) -> Account | None:
    """Find the account of that name."""
    document = reader.document(COLLECTION, name)
    return None if document is None else _from_document(document)


def list_accounts(reader: Reader) -> list[Account]:
    """List every account, disabled ones included, by name."""
    accounts: list[Account] = []
    after = ""
    while page := reader.documents(COLLECTION, after=after):
        accounts.extend(map(_from_document, page))
        after = page[-1].key
    return accounts


@lru_cache(maxsize=1)
def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher
    except ImportError as error:
        raise AegisError('accounts need the package `argon2-cffi`: pip install "aegis-guard[server]"') from error
    return PasswordHasher()


@lru_cache(maxsize=1)
def _decoy() -> str:
    return _hasher().hash("nobody has this password")


def _to_document(account: Account) -> Document:
    body: dict[str, Any] = {
        "roles": account.roles,
        "created_at": account.created_at,
        "password": account.password,
        "generation": account.generation,
    }
    return Document(
        collection=COLLECTION,
        key=account.name,
        version=account.version,
        state=account.state,
        body=orjson.dumps(body),
    )


def _from_document(document: Document) -> Account:
    try:
        body = orjson.loads(document.body)
        return Account(
            name=document.key,
            roles=tuple(body["roles"]),
            created_at=body["created_at"],
            password=body["password"],
            generation=body["generation"],
            state="active" if document.state == "active" else "disabled",
            version=document.version,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt("the record of an account is damaged") from error


# Secrets that a person's browser shows: sessions of the cockpit and one-time links; the store keeps hashes.

SESSIONS: Final = "cockpit_sessions"
LINKS: Final = "account_links"
SESSION_S: Final = 12 * 3600  # a working day; then the password is asked for again
IDLE_S: Final = 3600
TOUCH_S: Final = 300  # how exactly the last use is known: bounds the writes of a session
LINK_S: Final = 24 * 3600
MAX_TOKEN_CHARS: Final = 64
_BYTES: Final = 32


class SignedIn(Struct, frozen=True, kw_only=True):
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


class Link(Struct, frozen=True, kw_only=True):
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
