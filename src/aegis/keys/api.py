"""API keys: who may call the gateway, as what. A key is shown once; the store keeps its hash.

`aegis_<id>_<secret>`: the identifier finds the record, the whole text is hashed. The secret has 256
random bits, so one SHA-256 is enough to keep it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson
from msgspec import Struct, structs

from aegis.core.call import check_name
from aegis.core.names import Selector
from aegis.core.outcome import ROLES, Role
from aegis.core.ports import Document, Reader, Store, Transaction
from aegis.core.principal import Principal
from aegis.core.text import visible
from aegis.detect.fold import name_skeleton
from aegis.errors import InvalidCall, StoreCorrupt
from aegis.keys.accounts import list_accounts

COLLECTION: Final = "api_keys"
MAX_KEY_CHARS: Final = 128  # a credential is hashed before anything is known about its sender
MAX_SELECTORS: Final = 1_000  # every call of the key is matched against all of them
_PREFIX: Final = "aegis"
_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32

State = Literal["active", "revoked"]


class ApiKey(Struct, frozen=True, kw_only=True):
    """What is known of a key. `principal` names its holder: keys with the same one are the same party.

    `tools` are selectors (empty: no limit); times are microseconds since the epoch.
    """

    id: str
    principal: str
    roles: tuple[Role, ...]
    agent: str | None
    tools: tuple[str, ...]
    created_at: int
    state: State = "active"
    revoked_at: int | None = None
    version: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class IssuedKey:
    """A new key; `text` is the credential itself and exists nowhere else."""

    key: ApiKey
    text: str = field(repr=False)


def issue(
    *,
    roles: Sequence[str],
    now: int,
    agent: str | None = None,
    tools: Sequence[str] = (),
    name: str | None = None,
) -> IssuedKey:
    """Make a new key that no store knows yet. Its holder is `name`, else `agent:NAME`, else the key itself.

    Raises `InvalidCall` for no role, an unknown one, an agent's role without an agent, or a name
    that could be taken for another kind of holder.
    """
    unknown = [role for role in roles if role not in ROLES]
    if unknown or not roles:
        raise InvalidCall(f"a key needs roles, each one of {', '.join(ROLES)}", code="role")
    if "agent" in roles and not agent:
        raise InvalidCall("a key with the role `agent` needs the agent's name", code="agent")
    if name is not None and ":" in name:
        raise InvalidCall("the name of a holder must not contain `:`", code="name")
    for member, given in (("name", name), ("agent", agent)):
        if given is not None:
            check_name(member, given)
            if visible(given) != given or given != given.strip():
                raise InvalidCall(f"`{member}` holds characters that nobody sees: `{visible(given)}`", code=member)
    if len(tools) > MAX_SELECTORS or not all(text.strip() for text in tools):
        raise InvalidCall(f"a key is limited by at most {MAX_SELECTORS} selectors, none of them empty", code="tools")
    key_id = secrets.token_hex(_ID_BYTES)
    key = ApiKey(
        id=key_id,
        principal=name or (f"agent:{agent}" if agent else f"key:{key_id}"),
        roles=tuple(role for role in ROLES if role in roles),
        agent=agent or None,
        tools=tuple(tools),
        created_at=now,
    )
    return IssuedKey(key=key, text=f"{_PREFIX}_{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}")


def store_key(transaction: Transaction, issued: IssuedKey) -> None:
    """Write the record of a new key, with the hash in place of the credential."""
    transaction.put_document(_to_document(issued.key, _hash(issued.text)))


def revoke_key(transaction: Transaction, key_id: str, *, now: int) -> ApiKey:
    """Revoke a key for every process from its next call on; revoking it again changes nothing.

    Raises `InvalidCall` (404) where there is no such key.
    """
    stored = transaction.document(COLLECTION, key_id)
    if stored is None:
        raise InvalidCall("there is no such key", code="not_found", status=404)
    key, digest = _from_document(stored)
    if key.state == "revoked":
        return key
    revoked = structs.replace(key, state="revoked", revoked_at=now, version=key.version + 1)
    transaction.put_document(_to_document(revoked, digest))
    transaction.bump_epoch()
    return revoked


def list_keys(reader: Reader) -> list[ApiKey]:
    """List every key, revoked ones included, by identifier."""
    keys: list[ApiKey] = []
    after = ""
    while page := reader.documents(COLLECTION, after=after):
        keys.extend(_from_document(document)[0] for document in page)
        after = page[-1].key
    return keys


class _Cache(Struct, frozen=True):
    """Active keys of one epoch: their hash and their holder."""

    epoch: int
    keys: dict[str, tuple[bytes, Principal]]


class ApiKeys:
    """Authenticates credentials; what it remembers lasts until the store's control epoch moves."""

    def __init__(self, store: Store):
        self._store = store
        self._cache = _Cache(-1, {})

    def authenticate(self, text: str) -> Principal | None:
        """Find the holder of a credential, or `None`; raises `StoreUnavailable` where that cannot be known."""
        key_id = _id_of(text)
        if key_id is None:
            return None
        epoch = self._store.epoch()
        # A record read under an older epoch ends up in that epoch's cache, which nobody asks again.
        cache = self._cache
        if cache.epoch != epoch:
            cache = self._cache = _Cache(epoch, {})
        known = cache.keys.get(key_id) or self._load(cache, key_id)
        if known is None or not hmac.compare_digest(known[0], _hash(text)):
            return None
        return known[1]

    def _load(self, cache: _Cache, key_id: str) -> tuple[bytes, Principal] | None:
        with self._store.reader() as reader:
            document = reader.document(COLLECTION, key_id)
        if document is None:
            return None
        key, digest = _from_document(document)
        if key.state != "active":
            return None
        principal = Principal(
            id=key.principal,
            roles=frozenset(key.roles),
            agent=key.agent,
            tools=tuple(Selector(text) for text in key.tools),
        )
        return cache.keys.setdefault(key_id, (digest, principal))


def _id_of(text: str) -> str | None:
    if len(text) > MAX_KEY_CHARS or not text.isascii():
        return None
    parts = text.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == _PREFIX else None


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _to_document(key: ApiKey, digest: bytes) -> Document:
    body: dict[str, Any] = {
        "principal": key.principal,
        "roles": key.roles,
        "agent": key.agent,
        "tools": key.tools,
        "created_at": key.created_at,
        "revoked_at": key.revoked_at,
        "hash": digest.hex(),
    }
    return Document(collection=COLLECTION, key=key.id, version=key.version, state=key.state, body=orjson.dumps(body))


def _from_document(document: Document) -> tuple[ApiKey, bytes]:
    try:
        body = orjson.loads(document.body)
        key = ApiKey(
            id=document.key,
            principal=body["principal"],
            roles=tuple(body["roles"]),
            agent=body["agent"],
            tools=tuple(body["tools"]),
            created_at=body["created_at"],
            state="active" if document.state == "active" else "revoked",
            revoked_at=body["revoked_at"],
            version=document.version,
        )
        return key, bytes.fromhex(body["hash"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt("the record of an API key is damaged") from error


# Who somebody is now, by name: the roles that active API keys and the account of one principal give together.


class Holders:
    """Principals by id, as of one control epoch: a revoked key or a changed account moves the epoch."""

    def __init__(self) -> None:
        self._known: tuple[int, dict[str, Principal]] = (-1, {})

    def satisfies(self, reader: Reader, person: str, epoch: int, condition: Callable[[Principal], bool]) -> bool:
        """Tell whether `person` holds a credential and meets `condition`, under the control epoch `epoch`."""
        since, known = self._known
        if epoch == since and person in known and condition(known[person]):
            return True
        # A new key does not move the epoch: what is missing here may have been given meanwhile.
        found = holders(reader)
        # Both at once: what another thread read before the epoch moved is never taken for what holds since.
        self._known = (epoch, found)
        return person in found and condition(found[person])


def check_unlike(reader: Reader, name: str) -> None:
    """Guarantee that a new holder's name looks like nobody else's; raises `InvalidCall` (409).

    Whose key was revoked or whose account was disabled counts: what they did stands in the log under their name.
    """
    look = name_skeleton(name)
    known = {key.principal for key in list_keys(reader)} | {account.name for account in list_accounts(reader)}
    for other in sorted(known):
        if other != name and name_skeleton(other) == look:
            raise InvalidCall(
                f"`{visible(name)}` looks like `{visible(other)}`, who holds a credential here",
                code="look_alike",
                hint="choose another name, or exactly that one for another key of the same party",
                status=409,
            )


def holders(reader: Reader) -> dict[str, Principal]:
    """List everybody who holds an active key or an active account, by principal."""
    found: dict[str, Principal] = {}
    for key in list_keys(reader):
        if key.state == "active":
            known = found.get(key.principal)
            roles = frozenset(key.roles) if known is None else known.roles | frozenset(key.roles)
            found[key.principal] = Principal(id=key.principal, roles=roles, agent=key.agent)
    for account in list_accounts(reader):
        if account.state == "active":
            known = found.get(account.name)
            found[account.name] = (
                account.principal
                if known is None
                else structs.replace(known, roles=known.roles | frozenset(account.roles))
            )
    return found
