"""API keys, agents and accounts: each change is a receipt, so that the log says who could ask since when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

import orjson

from aegis.bootstrap.introduce import COLLECTION as RECEIPT_KEYS
from aegis.bootstrap.state import State
from aegis.core.ports import Document, Reader, Store, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import system_clock
from aegis.errors import InvalidCall
from aegis.gate.control import COLLECTION as SWITCHES
from aegis.gate.control import list_contained
from aegis.gate.events import new_id
from aegis.keys import api
from aegis.keys.accounts import (
    COLLECTION,
    PERSONAL_ROLES,
    Account,
    Link,
    add_account,
    change_account,
    check_roles,
    find_account,
    hash_password,
    new_account,
    new_link,
    use_link,
)
from aegis.keys.accounts import State as AccountState
from aegis.keys.api import ApiKey, IssuedKey, check_unlike, issue, list_keys, store_key
from aegis.log.writer import Ledger, Unit

# Which agents there are: who holds a key, who made a call, and who was registered, stopped or restored.


def known_agents(reader: Reader) -> dict[str, dict[str, Any]]:
    """List every known agent by name, with its `state`, and `reason` and `by` of the last switch.

    An agent is known from the moment in which a key is made for it, so that it can be stopped before its first call.
    """
    held = (key for key in list_keys(reader) if "agent" in key.roles and key.state == "active")
    holders = {name: _row(name) for name in (key.agent or key.principal for key in held)}
    return holders | seen_agents(reader)


def seen_agents(reader: Reader) -> dict[str, dict[str, Any]]:
    """List the agents that made a call, were registered, stopped or restored."""
    names = {orjson.loads(document.body).get("agent") for document in _every(reader, RECEIPT_KEYS)}
    agents = {name: _row(name) for name in names if name}
    for document in _every(reader, SWITCHES):
        body = orjson.loads(document.body)
        agents[document.key] = _row(document.key, document.state, body["reason"], body["by"])
    now = system_clock()
    for one in list_contained(reader):
        row = agents.get(one.agent)
        if one.of == "agent" and one.does == "suspend" and one.holds_at(now) and row and row["state"] == "active":
            agents[one.agent] = _row(one.agent, "suspended", one.cause, one.by)
    return agents


def _row(name: str, state: str = "active", reason: str = "", by: str = "") -> dict[str, Any]:
    return {"agent": name, "state": state, "reason": reason, "by": by}


def _every(reader: Reader, collection: str) -> Iterator[Document]:
    after = ""
    while rows := reader.documents(collection, after=after):
        yield from rows
        after = rows[-1].key


# Making and changing accounts: each is a receipt, so that the log says who could decide since when.

Action = Literal["create", "change", "disable", "enable", "password"]


def create_account(state: State, name: str, *, roles: Sequence[str], password: str, by: str) -> Account:
    """Make a new account, on the record; raises `InvalidCall` for a name that is taken or cannot be."""
    account = new_account(name, roles, password, now=system_clock())

    def apply(transaction: Transaction) -> Sequence[Draft]:
        check_unlike(transaction, account.name)
        add_account(transaction, account)
        return (_accounts_draft(account, "create", by),)

    state.ledger.append(Unit(apply=apply))
    return account


def alter_account(
    state: State,
    name: str,
    action: Action,
    *,
    by: str,
    password: str | None = None,
    roles: Sequence[str] | None = None,
    to: AccountState | None = None,
) -> Account:
    """Change an account, end its sessions, and put that on the record; raises `InvalidCall` (404)."""
    hashed = None if password is None else hash_password(password)
    checked = None if roles is None else check_roles(roles)
    changed: list[Account] = []

    def apply(transaction: Transaction) -> Sequence[Draft]:
        account = change_account(transaction, name, password=hashed, roles=checked, state=to)
        changed[:] = [account]
        return (_accounts_draft(account, action, by),)

    state.ledger.append(Unit(apply=apply))
    return changed[0]


def first_link(store: Store) -> str | None:
    """Make a one-time link for the first account, and give its token, or `None` where there is one already."""
    with store.reader() as reader:
        if has_accounts(reader):
            return None
    with store.transaction() as transaction:
        return new_link(transaction, "", now=system_clock())


def password_link(state: State, name: str) -> str:
    """Make the token of a one-time link under which the account sets a new password; raises `InvalidCall` (404)."""
    with state.store.transaction() as transaction:
        if find_account(transaction, name) is None:
            raise InvalidCall("there is no such account", code="not_found", status=404)
        return new_link(transaction, name, now=system_clock())


def link_unit(link: Link, *, name: str, password: str) -> Unit:
    """Make the unit that uses a one-time link up, and makes the first account or changes the password of the link's.

    Raises `InvalidCall` for a name or password that cannot be; applying it, `InvalidCall` or `StoreConflict`.
    """
    account = new_account(link.account or name, PERSONAL_ROLES, password, now=system_clock())

    def apply(transaction: Transaction) -> Sequence[Draft]:
        use_link(transaction, link)
        if link.account:
            changed = change_account(transaction, link.account, password=account.password)
            return (_accounts_draft(changed, "password", link.account),)
        if has_accounts(transaction):
            raise InvalidCall("there is an account already", code="conflict", hint="sign in", status=409)
        check_unlike(transaction, account.name)
        add_account(transaction, account)
        return (_accounts_draft(account, "create", account.name),)

    return Unit(apply=apply)


def has_accounts(reader: Reader) -> bool:
    """Tell whether anybody can sign in at all."""
    return bool(reader.documents(COLLECTION, limit=1))


def _accounts_draft(account: Account, action: Action, by: str) -> Draft:
    key: dict[str, Any] = {"purpose": "account", "holder": account.name, "roles": list(account.roles)}
    return Draft(members={"kind": "grant", "receipt_id": new_id(), "principal": by, "action": action, "key": key})


class Recording(Protocol):
    """What keeps a log: a state, or a whole deployment."""

    @property
    def ledger(self) -> Ledger: ...


def create_key(
    state: Recording,
    *,
    roles: Sequence[str],
    by: str,
    agent: str | None = None,
    name: str | None = None,
    tools: Sequence[str] = (),
) -> IssuedKey:
    """Make a new key, stored as its hash and on the record; `by` is the principal who made it.

    Raises `InvalidCall` for a key that cannot be, and `StoreError` where it cannot be recorded.
    """
    issued = issue(roles=roles, now=system_clock(), agent=agent, tools=tools, name=name)

    def apply(transaction: Transaction) -> Sequence[Draft]:
        check_unlike(transaction, issued.key.principal)
        store_key(transaction, issued)
        return (_draft(issued.key, "create", by),)

    state.ledger.append(Unit(apply=apply))
    return issued


def revoke_key(state: Recording, key_id: str, *, by: str) -> ApiKey:
    """Revoke a key for every process on this store, and put that on the record.

    Raises `InvalidCall` (404) where there is no such key, and `StoreError` where it cannot be recorded.
    """
    revoked: list[ApiKey] = []

    def apply(transaction: Transaction) -> Sequence[Draft]:
        stored = transaction.document(api.COLLECTION, key_id)
        key = api.revoke_key(transaction, key_id, now=system_clock())
        revoked.append(key)
        repeated = stored is not None and stored.version == key.version
        return () if repeated else (_draft(key, "revoke", by),)

    state.ledger.append(Unit(apply=apply))
    return revoked[0]


def _draft(key: ApiKey, action: str, by: str) -> Draft:
    members: dict[str, Any] = {
        "kind": "grant",
        "receipt_id": new_id(),
        "principal": by,
        "action": action,
        "key": {"kid": key.id, "purpose": "api", "holder": key.principal, "roles": list(key.roles)},
    }
    if key.agent:
        members["agent"] = key.agent
    return Draft(members=members)
