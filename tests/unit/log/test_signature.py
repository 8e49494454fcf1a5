"""Receipts verify by themselves, signed alone or in a group, and nothing signed can change."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.errors import LogInvalid
from aegis.log.append import MAX_GROUP, check, read_signature, sign_group, signing_input
from aegis.log.merkle import leaf_hash, node_hash


class Key:
    """A signer that counts how often it signs."""

    def __init__(self, seed: int = 1):
        self.private = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        self.public = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.signed = 0

    @property
    def kid(self) -> str:
        return "kid-1"

    def sign(self, message: bytes) -> bytes:
        self.signed += 1
        return self.private.sign(message)


def receipts(count: int, key: Key) -> list[dict[str, Any]]:
    drafts: list[dict[str, Any]] = [
        {"v": 1, "index": index, "kind": "decision", "tool": "send", "prev": f"p{index}"} for index in range(count)
    ]
    for draft, sig in zip(drafts, sign_group([signing_input(draft) for draft in drafts], key), strict=True):
        draft["sig"] = sig
    return drafts


def kind_of(receipt: dict[str, Any], key: Key) -> str:
    with pytest.raises(LogInvalid) as caught:
        check(receipt, key.public)
    return caught.value.broken.kind


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 64])
def test_every_receipt_of_a_group_verifies_by_itself(count: int) -> None:
    key = Key()
    group = receipts(count, key)
    assert key.signed == 1
    for receipt in group:
        check(receipt, key.public)
    expected = {"kid", "alg", "value"} | ({"index", "size", "path"} if count > 1 else set())
    assert set(group[0]["sig"]) == expected
    assert group[0]["sig"]["alg"] == ("Ed25519" if count == 1 else "Ed25519-batch")


def test_no_receipts_need_no_signature() -> None:
    key = Key()
    assert sign_group([], key) == []
    assert key.signed == 0


def test_a_group_is_bounded() -> None:
    with pytest.raises(ValueError, match="at most"):
        sign_group([b""] * (MAX_GROUP + 1), Key())


def test_the_signing_input_leaves_out_prev_and_sig_alone() -> None:
    receipt = {"v": 1, "prev": "x", "sig": {}, "index": 4, "agent": "a"}
    assert signing_input(receipt) == b'{"agent":"a","index":4,"v":1}'
    assert receipt["prev"] == "x"


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 9), st.data())
def test_any_change_of_what_was_signed_fails(count: int, data: st.DataObject) -> None:
    key = Key()
    receipt = copy.deepcopy(data.draw(st.sampled_from(receipts(count, key))))
    member = data.draw(st.sampled_from(["v", "index", "kind", "tool", "added"]))
    receipt[member] = "changed"
    assert kind_of(receipt, key) == "edited"


def test_a_receipt_that_takes_the_place_of_another_fails() -> None:
    key = Key()
    group = receipts(5, key)
    swapped = {**group[0], "sig": group[1]["sig"]}
    assert kind_of(swapped, key) == "edited"


def test_another_key_fails() -> None:
    for count in (1, 4):
        assert kind_of(receipts(count, Key())[0], Key(2)) == "edited"


def test_a_group_signature_is_no_signature_of_a_receipt_and_the_other_way_round() -> None:
    key = Key()
    group, alone = receipts(2, key)[0], receipts(1, key)[0]
    relabelled = {**group, "sig": {"kid": "kid-1", "alg": "Ed25519", "value": group["sig"]["value"]}}
    assert kind_of(relabelled, key) == "edited"
    grown = {**alone, "sig": {**group["sig"], "value": alone["sig"]["value"]}}
    assert kind_of(grown, key) == "edited"


def test_the_size_of_the_group_is_signed() -> None:
    key = Key()
    receipt = receipts(4, key)[0]
    receipt["sig"]["size"] = 3
    assert kind_of(receipt, key) in {"edited", "proof_invalid"}


def loose(value: str) -> str:
    """The same bytes, with another last character in the bits that base64 does not use."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    body = value.rstrip("=")
    other = body[:-1] + alphabet[alphabet.index(body[-1]) ^ 1] + value[len(body) :]
    assert base64.b64decode(other) == base64.b64decode(value)
    return other


def test_signatures_are_strictly_formed() -> None:
    key = Key()
    good = receipts(4, key)[1]
    sig = good["sig"]
    assert kind_of({name: good[name] for name in good if name != "sig"}, key) == "missing_signature"
    wrong: list[Any] = [
        [],
        "x",
        {},
        {**sig, "extra": 1},
        {**sig, "alg": "Ed25519"},
        {**sig, "alg": "none"},
        {**sig, "alg": None},
        {**sig, "kid": ""},
        {**sig, "kid": 7},
        {**sig, "value": sig["value"][:-4]},
        {**sig, "value": sig["value"] + "\n"},
        {**sig, "value": sig["value"].replace("=", "")},
        {**sig, "value": loose(sig["value"])},
        {**sig, "value": "é" * 88},
        {**sig, "value": 5},
        {**sig, "size": 1},
        {**sig, "size": True},
        {**sig, "size": 4.0},
        {**sig, "size": MAX_GROUP + 1},
        {**sig, "index": "1"},
        {**sig, "index": True},
        {**sig, "index": 1.0},
        {**sig, "path": "x"},
        {**sig, "path": {}},
        {**sig, "path": [1]},
        {**sig, "path": [loose(sig["path"][0]), *sig["path"][1:]]},
        {name: sig[name] for name in sig if name != "path"},
    ]
    for member in wrong:
        assert kind_of({**good, "sig": member}, key) == "malformed_member", member
    for member in ({**sig, "index": -1}, {**sig, "index": 4}, {**sig, "path": sig["path"][:1]}):
        assert kind_of({**good, "sig": member}, key) == "proof_invalid", member


def test_a_receipt_signed_alone_names_its_way_of_signing() -> None:
    key = Key()
    alone = receipts(1, key)[0]
    for alg in ("none", "Ed25519-batch", "ed25519", None):
        assert kind_of({**alone, "sig": {**alone["sig"], "alg": alg}}, key) == "malformed_member"


def test_a_malformed_signature_says_where() -> None:
    key = Key()
    good = receipts(4, key)[1]
    for member, wrong in (("kid", 7), ("value", "x"), ("path", ["x"])):
        with pytest.raises(LogInvalid) as caught:
            check({**good, "sig": {**good["sig"], member: wrong}}, key.public)
        assert caught.value.broken.detail == f"`sig.{member}`"


def test_what_is_signed_is_fixed() -> None:
    # Other implementations verify these bytes: a change of them is a new version of the receipt.
    key = Key()
    alone = receipts(1, key)[0]
    first = alone["sig"]["value"]
    key.private.public_key().verify(base64.b64decode(first), b"aegis/receipt/v1\0" + signing_input(alone))
    pair = receipts(2, key)
    root = node_hash(*(leaf_hash(signing_input(receipt)) for receipt in pair))
    message = b"aegis/receipt-batch/v1\0" + b"\0\0\0\0\0\0\0\2" + root
    key.private.public_key().verify(base64.b64decode(pair[0]["sig"]["value"]), message)


def test_the_largest_group_verifies() -> None:
    key = Key()
    assert MAX_GROUP == 65_536
    signatures = sign_group([b"x"] * MAX_GROUP, key)
    found = read_signature({"sig": signatures[-1]}, b"x")
    key.private.public_key().verify(found.value, found.message)


def test_a_group_leads_to_one_message() -> None:
    key = Key()
    group = receipts(9, key)
    assert len({read_signature(receipt, signing_input(receipt)) for receipt in group}) == 1
