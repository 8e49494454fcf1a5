"""Vectors of the log: receipts with their signatures, proofs over the tree of them, checkpoints."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from vector_values import Case, base64_of, seed

from aegis.core import canonical
from aegis.core.breaks import Break
from aegis.errors import LogInvalid
from aegis.keys.keyring import Ed25519Signer
from aegis.log import append, checkpoint, merkle


def _receipt(index: int) -> dict[str, Any]:
    return {
        "v": 1, "index": index, "log": "log.example", "time": "2027-01-15T08:00:00.000000Z", "kind": "decision",
        "receipt_id": f"r-{index}", "prev": "0" * 64, "agent": "bot", "principal": "key-1", "session": "s-1",
        "call_id": f"call_{index}", "tool": "pay", "call_commitment": canonical.sha256(b"%d" % index),
        "effects": ["external_send"], "risk": "high", "decision": "allow", "verdict": "compliant", "reason": "none",
        "guards": [{"guard": "content", "outcome": "allow", "rules": []}], "policy_digest": canonical.sha256(b"policy"),
    }  # fmt: skip


def receipts() -> Case:
    """Receipts with their leaf hashes and signatures: alone, in a group of three, and spoilt in one place each."""
    key = Ed25519Signer(seed(8), "receipt")
    alone = _receipt(0)
    alone["sig"] = append.sign_group([append.signing_input(alone)], key)[0]
    group = [_receipt(index) for index in (1, 2, 3)]
    for receipt, sig in zip(group, append.sign_group([append.signing_input(one) for one in group], key), strict=True):
        receipt["sig"] = sig
    spoilt: list[tuple[str, dict[str, Any], Callable[[dict[str, Any]], object]]] = [
        ("another decision", alone, lambda one: one.update(decision="block")),
        ("another index", alone, lambda one: one.update(index=9)),
        ("a member more", alone, lambda one: one.update(session_id="x")),
        ("no signature", alone, lambda one: one.pop("sig")),
        ("a signature that is no object", alone, lambda one: one.update(sig="x")),
        ("another algorithm", alone, lambda one: one["sig"].update(alg="ES256")),
        ("a signature without padding", alone, lambda one: one["sig"].update(value=one["sig"]["value"].rstrip("="))),
        ("a member of the signature more", alone, lambda one: one["sig"].update(typ="x")),
        ("one of a group, changed", group[1], lambda one: one.update(tool="refund")),
        ("another place in the group", group[1], lambda one: one["sig"].update(index=0)),
        ("a shorter path", group[1], lambda one: one["sig"]["path"].pop()),
        ("a larger group", group[1], lambda one: one["sig"].update(size=4)),
        ("a group of one", group[1], lambda one: one["sig"].update(size=1)),
    ]
    cases = [("signed alone", alone), *((f"signed as {n} of 3", one) for n, one in enumerate(group, start=1))]
    moved = {**alone, "prev": "1" * 64}  # what is signed leaves `prev` out: the chain binds it
    cases.append(("signed before its place was known", moved))
    for name, receipt, change in spoilt:
        copied = copy.deepcopy(receipt)
        change(copied)
        cases.append((name, copied))
    return {"key": {"kid": key.kid, "public": key.public.hex()}, "cases": [_checked(*one, key.public) for one in cases]}


def _checked(name: str, receipt: dict[str, Any], public: bytes) -> Case:
    body = canonical.canonical(receipt)
    try:
        append.check(receipt, public)
        broken = None
    except LogInvalid as error:
        broken = error.broken.kind
    return {"name": name, "receipt": body.decode(), "leaf_hash": merkle.leaf_hash(body).hex(), "broken": broken}


class _Tree:
    """The leaves of a small tree, as proofs are made from them."""

    def __init__(self, leaves: list[bytes]):
        self._leaves = leaves
        frontier, _ = merkle.Frontier.empty().extend(leaves)
        self.frontier = frontier

    def head(self) -> Any:
        return type("Head", (), {"size": len(self._leaves)})()

    def leaf_hashes(self, start: int, stop: int) -> list[bytes]:
        return self._leaves[start:stop]

    def node(self, level: int, position: int) -> bytes | None:
        return None


def inclusion() -> Case:
    """Proofs of inclusion and of consistency (RFC 9162, 2.1) over trees of up to nine leaves, good and spoilt."""
    leaves = [merkle.leaf_hash(f"leaf {index}".encode()) for index in range(9)]
    roots = [_Tree(leaves[:size]).frontier.root() for size in range(10)]
    tree = _Tree(leaves)
    included = [
        _inclusion(
            f"leaf {index} of {size}",
            leaves[index],
            index,
            size,
            merkle.inclusion_proof(index, size, tree),
            roots[size],
        )
        for size in (1, 2, 3, 5, 8, 9)
        for index in range(size)
    ]
    path = merkle.inclusion_proof(3, 7, tree)
    included += [
        _inclusion("another leaf", leaves[2], 3, 7, path, roots[7]),
        _inclusion("another place", leaves[3], 2, 7, path, roots[7]),
        _inclusion("another size", leaves[3], 3, 8, path, roots[7]),
        _inclusion("another root", leaves[3], 3, 7, path, roots[8]),
        _inclusion("a path too short", leaves[3], 3, 7, path[:-1], roots[7]),
        _inclusion("a path too long", leaves[3], 3, 7, [*path, leaves[0]], roots[7]),
        _inclusion("a hash too short", leaves[3], 3, 7, [path[0][:31], *path[1:]], roots[7]),
        _inclusion("outside of the tree", leaves[3], 7, 7, path, roots[7]),
        _inclusion("a place below nothing", leaves[3], -1, 7, path, roots[7]),
    ]
    consistent = [
        _consistency(f"{first} to {second}", first, second, roots[first], roots[second],
                     merkle.consistency_proof(first, second, tree))
        for second in (1, 2, 3, 7, 8, 9) for first in range(second + 1)
    ]  # fmt: skip
    path = merkle.consistency_proof(3, 7, tree)
    consistent += [
        _consistency("another earlier root", 3, 7, roots[4], roots[7], path),
        _consistency("another later root", 3, 7, roots[3], roots[8], path),
        _consistency("sizes out of order", 7, 3, roots[7], roots[3], path),
        _consistency("no path", 3, 7, roots[3], roots[7], []),
        _consistency("a path too long", 3, 7, roots[3], roots[7], [*path, leaves[0]]),
        _consistency("a path too short", 3, 7, roots[3], roots[7], path[:-1]),
        _consistency("equal sizes and other roots", 3, 3, roots[3], roots[4], []),
        _consistency("equal sizes and a path", 3, 3, roots[3], roots[3], [leaves[0]]),
    ]
    return {"inclusion": included, "consistency": consistent}


def _inclusion(name: str, leaf: bytes, index: int, size: int, path: list[bytes], root: bytes) -> Case:
    holds = _holds(lambda: merkle.verify_inclusion(leaf, index, size, path, root))
    return {
        "name": name, "leaf_hash": leaf.hex(), "index": index, "size": size, "path": [one.hex() for one in path],
        "root": root.hex(), "holds": holds,
    }  # fmt: skip


def _consistency(name: str, first: int, second: int, first_root: bytes, second_root: bytes, path: list[bytes]) -> Case:
    holds = _holds(lambda: merkle.verify_consistency(first, second, first_root, second_root, path))
    return {
        "name": name, "first": first, "second": second, "first_root": first_root.hex(),
        "second_root": second_root.hex(), "path": [one.hex() for one in path], "holds": holds,
    }  # fmt: skip


def checkpoints() -> Case:
    """Signed notes (C2SP), good and spoilt."""
    key = Ed25519Signer(seed(9), "log")
    root = merkle.leaf_hash(b"root")
    said = checkpoint.Checkpoint(origin="log.example", size=42, root=root)
    good = checkpoint.sign_checkpoint(said, key).decode()
    text_, _ = good.split("\n\n")
    other = checkpoint.sign_checkpoint(said, Ed25519Signer(seed(5), "log")).decode().split("\n\n")[1]
    cases = {
        "signed": good,
        "signed by a witness too": good + other,
        "signed by somebody else": f"{text_}\n\n{other}",
        "another size": good.replace("\n42\n", "\n43\n"),
        "a size with a leading zero": good.replace("\n42\n", "\n042\n"),
        "a size that is no number": good.replace("\n42\n", "\n4x\n"),
        "another origin": good.replace("log.example", "log2.example"),
        "an extension line": good.replace("\n\n", "\nextension\n\n"),
        "no signature": f"{text_}\n",
        "a signature line that does not end": good[:-1],
        "a hyphen for the dash": good.replace("—", "-"),
        "carriage returns": good.replace("\n", "\r\n"),
        "a root too short": good.replace(base64_of(root), base64_of(root[:31])),
        "nothing": "",
    }
    return {
        "key": {"public": key.public.hex(), "verifier": checkpoint.verifier_key("log.example", key.public)},
        "cases": [_note(name, note, key.public) for name, note in cases.items()],
    }


def _note(name: str, note: str, public: bytes) -> Case:
    try:
        read, _ = checkpoint.open_checkpoint(checkpoint.parse_checkpoint(note.encode()), [public])
    except LogInvalid:
        return {"name": name, "note": note, "expect": None}
    return {"name": name, "note": note, "expect": {"origin": read.origin, "size": read.size, "root": read.root.hex()}}


def _holds(check: Callable[[], None]) -> bool:
    try:
        check()
    except LogInvalid as error:
        if not isinstance(error.broken, Break):
            raise
        return False
    return True
