"""The public keys as the log announced them."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from aegis.keys.keyring import Ed25519Signer
from aegis.log.trust import jwks, public_keys
from aegis.store import MemoryStore
from support.log_entries import append, entry

LOG = Ed25519Signer(b"l" * 32, "log")
PERMIT = Ed25519Signer(b"p" * 32, "permit")
FIRST = Ed25519Signer(b"1" * 32, "receipt", "bot")
SECOND = Ed25519Signer(b"2" * 32, "receipt", "bot")


def log_of(*announced: tuple[str, Ed25519Signer] | None) -> MemoryStore:
    """A log in which each place is a key receipt, or something else."""
    store = MemoryStore()
    with store.transaction() as transaction:
        for index, item in enumerate(announced):
            body: dict[str, Any] = {"log": "aegis/log/1"}
            if item is not None:
                body |= {"action": item[0], "key": item[1].describe()}
            kind = "decision" if item is None else "key"
            append(transaction, entry(index, kind=kind, body=orjson.dumps(body)))
    return store


def test_each_key_has_the_indexes_between_which_it_signs() -> None:
    store = log_of(("add", LOG), ("add", PERMIT), ("add", FIRST), None, ("rotate", SECOND), ("retire", PERMIT))
    with store.reader() as reader:
        document = public_keys(reader)
    assert document == {
        "v": 1,
        "log": "aegis/log/1",
        "keys": [
            {**LOG.describe(), "from": 0},
            {**PERMIT.describe(), "from": 1, "until": 5},
            {**FIRST.describe(), "from": 2, "until": 4},
            {**SECOND.describe(), "from": 4},
        ],
    }


def test_a_key_set_holds_the_keys_in_force() -> None:
    store = log_of(("add", LOG), ("add", FIRST), ("rotate", SECOND))
    with store.reader() as reader:
        found = jwks(public_keys(reader))["keys"]
    assert [(key["kid"], key["purpose"], key.get("agent")) for key in found] == [
        (LOG.kid, "log", None),
        (SECOND.kid, "receipt", "bot"),
    ]
    assert base64.urlsafe_b64decode(found[0]["x"] + "=") == LOG.public
    assert all((key["kty"], key["crv"], key["alg"]) == ("OKP", "Ed25519", "EdDSA") for key in found)


def test_a_log_without_keys_has_none() -> None:
    with log_of(None).reader() as reader:
        assert public_keys(reader) == {"v": 1, "log": "", "keys": []}


def test_many_keys_are_all_found() -> None:
    signers = [Ed25519Signer(number.to_bytes(32, "big"), "receipt", f"a{number}") for number in range(1, 1_203)]
    with log_of(*(("add", signer) for signer in signers)).reader() as reader:
        assert [key["kid"] for key in public_keys(reader)["keys"]] == [signer.kid for signer in signers]


def test_a_rotation_ends_every_key_of_its_owner() -> None:
    third = Ed25519Signer(b"3" * 32, "receipt", "bot")
    store = log_of(("add", FIRST), ("add", SECOND), ("add", PERMIT), ("rotate", third))
    with store.reader() as reader:
        spans = [(key["kid"], key["from"], key.get("until")) for key in public_keys(reader)["keys"]]
    assert spans == [(FIRST.kid, 0, 3), (SECOND.kid, 1, 3), (PERMIT.kid, 2, None), (third.kid, 3, None)]
