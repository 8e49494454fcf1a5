"""How a receipt is signed: alone, or as one of a group under one signature.

What is signed is the receipt without `sig` and `prev`. `prev` is left out because in a group it
depends on the signature of the receipt before; the hash chain and the tree bind it instead. A group
shares one signature over the root of a Merkle tree (RFC 6962) of its signing inputs; every receipt
carries its own path, and so verifies by itself.
"""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aegis.core.breaks import Break, BreakKind
from aegis.core.canonical import canonical_record
from aegis.core.ed25519 import SIGNATURE_BYTES, verify
from aegis.core.ports import Signer
from aegis.errors import LogInvalid, SignatureInvalid
from aegis.log.merkle import HASH_BYTES, leaf_hash, root_from_inclusion

ED25519: Final = "Ed25519"
ED25519_BATCH: Final = "Ed25519-batch"
MAX_GROUP: Final = 65_536  # bounds the path of a receipt, and so what a forged one can make us hash
_ALONE_DOMAIN: Final = b"aegis/receipt/v1\0"
_GROUP_DOMAIN: Final = b"aegis/receipt-batch/v1\0"
_ALONE_MEMBERS: Final = frozenset({"kid", "alg", "value"})
_GROUP_MEMBERS: Final = frozenset({"kid", "alg", "value", "index", "size", "path"})

_sha256 = hashlib.sha256


@dataclass(frozen=True, slots=True)
class Signed:
    """What a signature member claims: that the key `kid` signed `message`, with `value`."""

    kid: str
    message: bytes
    value: bytes


def signing_input(receipt: dict[str, Any]) -> bytes:
    """The canonical bytes of a receipt without `sig` and `prev`."""
    return canonical_record({name: value for name, value in receipt.items() if name not in {"prev", "sig"}})


def sign_group(inputs: Sequence[bytes], signer: Signer) -> list[dict[str, Any]]:
    """The `sig` members of receipts that are appended together, in order.

    One input is signed itself. From two on, one signature covers all: hashing a second leaf costs
    under a tenth of a second signature. Raises `ValueError` beyond `MAX_GROUP`.
    """
    if len(inputs) > MAX_GROUP:
        raise ValueError(f"a group holds at most {MAX_GROUP} receipts")
    kid = signer.kid
    if len(inputs) == 1:
        value = binascii.b2a_base64(signer.sign(_ALONE_DOMAIN + inputs[0]), newline=False).decode()
        return [{"kid": kid, "alg": ED25519, "value": value}]
    if not inputs:
        return []
    size = len(inputs)
    levels: list[list[str]] = []
    hashes = [leaf_hash(data) for data in inputs]
    while len(hashes) > 1:
        levels.append([_encode(node) for node in hashes])
        above = [_sha256(b"\x01" + hashes[left] + hashes[left + 1]).digest() for left in range(0, len(hashes) - 1, 2)]
        # The last node of an odd level moves up unchanged, which is the tree of RFC 6962.
        if len(hashes) & 1:
            above.append(hashes[-1])
        hashes = above
    value = _encode(signer.sign(_group_message(size, hashes[0])))
    return [
        {"kid": kid, "alg": ED25519_BATCH, "value": value, "index": index, "size": size, "path": _path(index, levels)}
        for index in range(size)
    ]


def read_signature(receipt: dict[str, Any], data: bytes) -> Signed:
    """What the `sig` member of `receipt` claims about the signing input `data`.

    Nothing is verified yet. Raises `LogInvalid` for a member that is absent or not strictly formed.
    """
    sig = receipt.get("sig")
    if sig is None:
        raise _invalid("missing_signature")
    if type(sig) is not dict:
        raise _malformed("sig")
    alg, members = sig.get("alg"), sig.keys()
    alone = alg == ED25519 and members == _ALONE_MEMBERS
    if not alone and not (alg == ED25519_BATCH and members == _GROUP_MEMBERS):
        raise _malformed("sig")
    kid = sig["kid"]
    if type(kid) is not str or not kid:
        raise _malformed("sig.kid")
    value = _decode(sig["value"], SIGNATURE_BYTES, "sig.value")
    if alone:
        return Signed(kid, _ALONE_DOMAIN + data, value)
    index, size, path = sig["index"], sig["size"], sig["path"]
    if type(index) is not int or type(size) is not int or not 2 <= size <= MAX_GROUP or type(path) is not list:
        raise _malformed("sig.path")
    nodes = [_decode(node, HASH_BYTES, "sig.path") for node in path]
    return Signed(kid, _group_message(size, root_from_inclusion(leaf_hash(data), index, size, nodes)), value)


def verify_signed(signed: Signed, public: bytes) -> None:
    """Guarantee that the key signed the message; raises `LogInvalid` (`edited`)."""
    try:
        verify(public, signed.value, signed.message)
    except SignatureInvalid as error:
        raise _invalid("edited") from error


def check(receipt: dict[str, Any], public: bytes) -> None:
    """Guarantee that the key `public` signed everything of `receipt` but `prev`; raises `LogInvalid`.

    Whether that key may sign for this receipt is the caller's question.
    """
    verify_signed(read_signature(receipt, signing_input(receipt)), public)


def _group_message(size: int, root: bytes) -> bytes:
    return _GROUP_DOMAIN + size.to_bytes(8, "big") + root


def _path(index: int, levels: list[list[str]]) -> list[str]:
    path: list[str] = []
    for level in levels:
        sibling = index ^ 1
        if sibling < len(level):
            path.append(level[sibling])
        index >>= 1
    return path


def _encode(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _decode(text: object, length: int, member: str) -> bytes:
    """The bytes of canonical, padded base64 (RFC 4648, section 4); raises `LogInvalid`."""
    if type(text) is not str:
        raise _malformed(member)
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise _malformed(member) from error
    if len(data) != length or _encode(data) != text:
        raise _malformed(member)
    return data


def _malformed(member: str) -> LogInvalid:
    return LogInvalid(Break(kind="malformed_member", detail=f"`{member}`"))


def _invalid(kind: BreakKind) -> LogInvalid:
    return LogInvalid(Break(kind=kind))
