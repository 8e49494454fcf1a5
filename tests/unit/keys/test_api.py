"""API keys: shown once, kept as hashes, and gone for every process when they are revoked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.core.ports import Document, Store
from aegis.errors import InvalidCall, StoreConflict, StoreCorrupt, StoreUnavailable
from aegis.keys.api import MAX_SELECTORS, ApiKeys, IssuedKey, issue, list_keys, revoke_key, store_key
from aegis.store import open_store


@pytest.fixture(params=["memory:", "sqlite:///log.db"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(request.param, home=tmp_path, durability="os")
    yield opened
    opened.close()


def created(store: Store, **values: Any) -> IssuedKey:
    issued = issue(**{"roles": ["agent"], "agent": "bot", "now": 5, **values})
    with store.transaction() as transaction:
        store_key(transaction, issued)
    return issued


def revoke(store: Store, issued: IssuedKey) -> None:
    with store.transaction() as transaction:
        revoke_key(transaction, issued.key.id, now=9)


def test_a_key_names_its_holder_with_roles_agent_and_tools(store: Store) -> None:
    issued = created(store, roles=["auditor", "agent", "agent"], tools=["mail/*", "read_*"])
    principal = ApiKeys(store).authenticate(issued.text)
    assert principal is not None
    assert (principal.id, principal.agent) == ("agent:bot", "bot")
    assert principal.roles == frozenset({"agent", "auditor"})
    assert [selector.text for selector in principal.tools] == ["mail/*", "read_*"]
    assert principal.may_call("mail", "send")
    assert not principal.may_call(None, "send")
    assert issued.key.roles == ("agent", "auditor")


def test_the_holder_is_the_name_the_agent_or_the_key_itself(store: Store) -> None:
    keys = ApiKeys(store)
    alice = created(store, roles=["approver"], agent=None, name="alice")
    nameless = created(store, roles=["auditor"], agent=None)
    both = created(store, roles=["agent", "approver"], name="alice")
    holders = [keys.authenticate(issued.text) for issued in (alice, nameless, both)]
    assert [holder and holder.id for holder in holders] == ["alice", f"key:{nameless.key.id}", "alice"]


def test_anything_else_is_nobody(store: Store) -> None:
    issued, other = created(store), created(store)
    keys = ApiKeys(store)
    prefix, key_id, secret = issued.text.split("_", 2)
    for text in (
        "",
        "aegis",
        "aegis__",
        f"aegis_{key_id}_",
        f"aegis_{key_id}_{secret[:-1]}",
        f"aegis_{key_id}_{secret}x",
        f"aegis_{other.key.id}_{secret}",
        f"aegis_{'0' * 12}_{secret}",
        f"AEGIS_{key_id}_{secret}",
        f"{prefix}_{key_id}_{secret.swapcase()}",
        f" {issued.text}",
        f"{issued.text}\n",
        "aegis_\ud800_x",
        "é" * 20,
        "aegis_" + "a" * 10_000,
    ):
        assert keys.authenticate(text) is None, text
    assert keys.authenticate(issued.text) is not None


def test_every_process_refuses_a_revoked_key_at_its_next_call(store: Store) -> None:
    issued, kept = created(store), created(store)
    here, there = ApiKeys(store), ApiKeys(store)
    assert here.authenticate(issued.text)
    assert there.authenticate(issued.text)
    revoke(store, issued)
    assert here.authenticate(issued.text) is None
    assert there.authenticate(issued.text) is None
    assert here.authenticate(kept.text)


def test_revoking_twice_changes_nothing_and_an_unknown_key_is_not_found(store: Store) -> None:
    issued = created(store)
    revoke(store, issued)
    epoch = store.epoch()
    revoke(store, issued)
    assert store.epoch() == epoch
    with pytest.raises(InvalidCall) as caught, store.transaction() as transaction:
        revoke_key(transaction, "absent", now=1)
    assert caught.value.status == 404


def test_keys_are_listed_without_their_secrets(store: Store) -> None:
    issued = [created(store, agent=f"bot-{number}") for number in range(3)]
    revoke(store, issued[0])
    with store.reader() as reader:
        listed = {key.id: key for key in list_keys(reader)}
    assert listed.keys() == {item.key.id for item in issued}
    assert (listed[issued[0].key.id].state, listed[issued[0].key.id].revoked_at) == ("revoked", 9)
    assert listed[issued[1].key.id] == issued[1].key
    secret = issued[1].text.split("_", 2)[2]
    assert secret not in repr(listed) + repr(issued[1])
    with store.reader() as reader:
        assert secret.encode() not in b"".join(item.body for item in reader.documents("api_keys"))


@pytest.mark.parametrize(
    "values",
    [
        {"roles": []},
        {"roles": ["root"]},
        {"roles": ["agent", "root"]},
        {"agent": None},
        {"agent": ""},
        {"name": ""},
        {"name": " "},
        {"name": "agent:bot"},
        {"tools": [""]},
        {"tools": ["x"] * (MAX_SELECTORS + 1)},
    ],
)
def test_a_key_that_would_be_unclear_is_not_made(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall):
        issue(**{"roles": ["agent"], "agent": "bot", "now": 1, **values})


def test_keys_do_not_repeat() -> None:
    assert len({issue(roles=["admin"], now=1).text for _ in range(50)}) == 50


def test_a_key_is_stored_once(store: Store) -> None:
    issued = created(store)
    with pytest.raises(StoreConflict), store.transaction() as transaction:
        store_key(transaction, issued)


def test_a_damaged_record_is_corruption(store: Store) -> None:
    issued = created(store)
    with store.transaction() as transaction:
        transaction.put_document(
            Document(collection="api_keys", key=issued.key.id, version=2, state="active", body=b'{"hash":1}')
        )
    with pytest.raises(StoreCorrupt):
        ApiKeys(store).authenticate(issued.text)


def test_without_a_store_nobody_is_authenticated(store: Store) -> None:
    issued = created(store)
    keys = ApiKeys(store)
    assert keys.authenticate(issued.text)
    store.close()
    with pytest.raises(StoreUnavailable):
        keys.authenticate(issued.text)
