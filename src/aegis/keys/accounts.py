"""Accounts: people who sign in to the cockpit. A password is kept as its Argon2id hash (RFC 9106).

A person's principal is the account's name, the same party as API keys of that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from aegis.core.outcome import Role
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.principal import Principal
from aegis.errors import AegisError, InvalidCall, StoreCorrupt

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
