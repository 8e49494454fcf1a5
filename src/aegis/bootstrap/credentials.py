"""Making and revoking API keys: each is a receipt, so that the log says who could ask since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aegis.audit.writer import Unit
from aegis.bootstrap.state import State
from aegis.core.ports import Transaction
from aegis.core.receipt import Draft
from aegis.core.times import system_clock
from aegis.gate.ids import new_id
from aegis.keys import api
from aegis.keys.api import ApiKey, IssuedKey, issue, store_key
from aegis.keys.holders import check_unlike


def create_key(
    state: State,
    *,
    roles: Sequence[str],
    by: str,
    agent: str | None = None,
    name: str | None = None,
    tools: Sequence[str] = (),
) -> IssuedKey:
    """A new key, stored as its hash and on the record; `by` is the principal who made it.

    Raises `InvalidCall` for a key that cannot be, and `StoreError` where it cannot be recorded.
    """
    issued = issue(roles=roles, now=system_clock(), agent=agent, tools=tools, name=name)

    def apply(transaction: Transaction) -> Sequence[Draft]:
        check_unlike(transaction, issued.key.principal)
        store_key(transaction, issued)
        return (_draft(issued.key, "create", by),)

    state.ledger.append(Unit(apply=apply))
    return issued


def revoke_key(state: State, key_id: str, *, by: str) -> ApiKey:
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
