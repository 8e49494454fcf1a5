"""From drafts to leaves: position, chain, signature and tree, as one pure step; and how a receipt is signed.

(1) time never runs backwards: the log's last time is the floor
(2) every draft gets its position and becomes a signing input
(3) inputs that share a key share a signature when that is cheaper
(4) chain: each leaf holds the hash of the one before it
(5) tree: the frontier moves to the new end
"""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from aegis.core.breaks import Break, BreakKind
from aegis.core.canonical import canonical_record
from aegis.core.ed25519 import SIGNATURE_BYTES, verify
from aegis.core.json import convert
from aegis.core.outcome import Effect, Reason, Role
from aegis.core.ports import Entry, Head, Node, Payload, Signer
from aegis.core.receipt import MEMBERS_OF, RECEIPT_VERSION, REQUIRED, Draft, Kind, Recorded
from aegis.core.times import rfc3339
from aegis.errors import LogInvalid, SignatureInvalid
from aegis.log.merkle import HASH_BYTES, Frontier, leaf_hash, root_from_inclusion

# How a receipt is signed: alone, or as one of a group under one signature.
#
# What is signed is the receipt without `sig` and `prev`. `prev` is left out because in a group it depends on the
# signature of the receipt before; the hash chain and the tree bind it instead. A group shares one signature over
# the root of a Merkle tree (RFC 6962) of its signing inputs; every receipt carries its own path, and so verifies by
# itself.

ED25519: Final = "Ed25519"
ED25519_BATCH: Final = "Ed25519-batch"
MAX_GROUP: Final = 65_536  # bounds the path of a receipt, and so what a forged one can make us hash
_ALONE_DOMAIN: Final = b"aegis/receipt/v1\0"
_GROUP_DOMAIN: Final = b"aegis/receipt-batch/v1\0"
_ALONE_MEMBERS: Final = frozenset({"kid", "alg", "value"})
_GROUP_MEMBERS: Final = frozenset({"kid", "alg", "value", "index", "size", "path"})

_sha256 = hashlib.sha256


class Signed(Struct, frozen=True):
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


# What a receipt of version 1 may look like: a closed set of members, each with the values it may have.
#
# Values hold no floats, no nulls and ASCII keys alone, so that every canonicaliser agrees on the bytes.

MAX_DEPTH: Final = 8  # nesting inside a member: bounds the recursion that hostile lines can cause
_SAFE_INTEGER: Final = 2**53 - 1
_HEX: Final = "0123456789abcdef"
_DIGITS: Final = {ord(digit): "0" for digit in "0123456789"}
_TIME: Final = "0000-00-00T00:00:00.000000Z"

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=_SAFE_INTEGER)]
_Outcome = Literal["allow", "sanitize", "require_approval", "block"]


class _Guard(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    guard: _Text
    outcome: _Outcome
    rules: list[str]


class _Context(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    labels: list[Literal["public", "internal", "confidential", "restricted"]]
    untrusted: bool
    task: bool
    turns: _Number
    calls: _Number
    drift: _Number | UnsetType = UNSET


class _Deferral(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    reason: _Text
    resolution: Literal["pending", "evidence", "approver", "denied", "timeout", "cancelled", "replaced"]
    time: str


class Members(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The members of every version and their types; those below `sig` may be absent."""

    v: Literal[1, 2]
    index: _Number
    log: _Text
    time: str
    kind: Kind
    receipt_id: _Text
    prev: str
    principal: _Text
    sig: dict[str, Any]
    parent: _Text | UnsetType = UNSET
    agent: _Text | UnsetType = UNSET
    session: _Text | UnsetType = UNSET
    call_id: _Text | UnsetType = UNSET
    tool: _Text | UnsetType = UNSET
    server: str | UnsetType = UNSET
    call_commitment: str | UnsetType = UNSET
    payload_commitment: str | UnsetType = UNSET
    effects: list[Effect] | UnsetType = UNSET
    risk: Literal["low", "medium", "high", "critical"] | UnsetType = UNSET
    decision: _Outcome | UnsetType = UNSET
    verdict: Literal["compliant", "insufficient_evidence", "violation"] | UnsetType = UNSET
    reason: Reason | UnsetType = UNSET
    guards: list[_Guard] | UnsetType = UNSET
    policy_digest: str | UnsetType = UNSET
    settings: dict[str, Any] | UnsetType = UNSET
    approval_id: _Text | UnsetType = UNSET
    approvers: list[str] | UnsetType = UNSET
    permit_id: _Text | UnsetType = UNSET
    mission_id: _Text | UnsetType = UNSET
    budget: dict[str, Any] | UnsetType = UNSET
    provenance: dict[str, Any] | UnsetType = UNSET
    key: dict[str, Any] | UnsetType = UNSET
    action: _Text | UnsetType = UNSET
    mission: _Text | UnsetType = UNSET
    lineage: list[_Text] | UnsetType = UNSET
    missing: list[_Text] | UnsetType = UNSET
    preview: dict[str, Any] | UnsetType = UNSET
    judge: dict[str, Any] | UnsetType = UNSET
    grant_id: _Text | UnsetType = UNSET
    expires: str | UnsetType = UNSET
    owner: _Text | UnsetType = UNSET
    roles: list[Role] | UnsetType = UNSET
    context: _Context | UnsetType = UNSET
    deferral: _Deferral | UnsetType = UNSET
    execution: Literal["ok", "failed", "unknown"] | UnsetType = UNSET


def check_members(receipt: dict[str, Any]) -> None:
    """Guarantee that a receipt has the members of its version, and each of them a value it may have.

    What `sig` holds besides a key's name is left to `read_signature`. Raises `LogInvalid`.
    """
    # (1) The version decides about everything else.
    version = receipt.get("v")
    if type(version) is not int or version not in MEMBERS_OF:
        raise _invalid("unknown_version")
    # (2) No member too many, none too few.
    if not receipt.keys() <= MEMBERS_OF[version]:
        raise _invalid("unknown_member")
    if not receipt.keys() >= REQUIRED:
        missing = sorted(REQUIRED - receipt.keys())
        raise _invalid("missing_signature" if missing == ["sig"] else "missing_member", missing[0])
    # (3) The type of every value.
    try:
        found = convert(receipt, Members)
    except msgspec.ValidationError as error:
        raise _invalid("malformed_member", _member(error)) from error
    # (4) The form of those that types do not say.
    if found.time.translate(_DIGITS) != _TIME:
        raise _invalid("malformed_member", "time")
    if found.expires is not UNSET and found.expires.translate(_DIGITS) != _TIME:
        raise _invalid("malformed_member", "expires")
    if found.deferral is not UNSET and found.deferral.time.translate(_DIGITS) != _TIME:
        raise _invalid("malformed_member", "deferral.time")
    if len(found.prev) not in {0, 64} or found.prev.strip(_HEX):
        raise _invalid("malformed_member", "prev")
    kid = found.sig.get("kid")
    if type(kid) is not str or not kid:
        raise _invalid("malformed_member", "sig.kid")
    for name in ("call_commitment", "payload_commitment", "policy_digest"):
        if not _is_digest(receipt.get(name)):
            raise _invalid("malformed_member", name)
    for name in ("settings", "budget", "provenance", "key", "preview", "judge"):
        if name in receipt and not _is_plain(receipt[name], MAX_DEPTH):
            raise _invalid("malformed_member", name)


def _is_digest(value: str | None) -> bool:
    return value is None or (len(value) == 72 and value[:8] == "sha-256:" and not value[8:].strip(_HEX))


def _is_plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind is str or kind is bool:
        return True
    if kind is int:
        return bool(-_SAFE_INTEGER <= value <= _SAFE_INTEGER)
    if depth == 0:
        return False
    if kind is dict:
        return all(key.isascii() and _is_plain(item, depth - 1) for key, item in value.items())
    return kind is list and all(_is_plain(item, depth - 1) for item in value)


def _member(error: msgspec.ValidationError) -> str:
    """The member that the message of the decoder points at: "... - at `$.guards[0].rules`"."""
    _, _, place = str(error).rpartition("`$.")
    return place.rstrip("`")


def _invalid(kind: BreakKind, member: str = "") -> LogInvalid:
    return LogInvalid(Break(kind=kind, detail=f"`{member}`" if member else ""))


Seal = Callable[[bytes], tuple[bytes, bytes]]
SignerFor = Callable[[str], Signer]


class Batch(Struct, frozen=True, kw_only=True):
    """What one group commit writes; `behind` is how far the clock ran backwards, in microseconds."""

    entries: tuple[Entry, ...]
    payloads: tuple[Payload, ...]
    nodes: tuple[Node, ...]
    frontier: Frontier
    head: Head
    recorded: tuple[Recorded, ...]
    behind: int


def build(
    *,
    head: Head,
    frontier: Frontier,
    drafts: Sequence[Draft],
    now: int,
    log: str,
    signer_for: SignerFor,
    seal: Seal,
) -> Batch:
    """The leaves that follow `head` for `drafts`, in their order.

    `frontier` is the decoded frontier of `head`; `now` is microseconds since the epoch.
    """
    # (1)
    moment = max(now, head.time)
    stamp = rfc3339(moment)
    # (2)
    bodies: list[dict[str, Any]] = []
    inputs: list[bytes] = []
    groups: dict[str, list[int]] = {}
    for offset, draft in enumerate(drafts):
        body = {**draft.members, "v": RECEIPT_VERSION, "index": head.size + offset, "log": log, "time": stamp}
        bodies.append(body)
        inputs.append(canonical_record(body))
        groups.setdefault(draft.signer, []).append(offset)
    # (3)
    for name, offsets in groups.items():
        one_key = inputs if len(groups) == 1 else [inputs[offset] for offset in offsets]
        signatures = sign_group(one_key, signer_for(name))
        for offset, signature in zip(offsets, signatures, strict=True):
            bodies[offset]["sig"] = signature
    # (4)
    previous = head.leaf
    entries: list[Entry] = []
    payloads: list[Payload] = []
    recorded: list[Recorded] = []
    leaves: list[bytes] = []
    for draft, body in zip(drafts, bodies, strict=True):
        body["prev"] = previous.hex()
        record = canonical_record(body)
        previous = leaf_hash(record)
        leaves.append(previous)
        index, receipt_id = body["index"], body["receipt_id"]
        entries.append(entry_of(body, record, previous, moment))
        recorded.append(Recorded(receipt_id=receipt_id, index=index, leaf_hash=previous, time=stamp))
        if draft.payload is not None:
            key, sealed = seal(draft.payload)
            payloads.append(Payload(index=index, salt=draft.salt, key=key, body=sealed))
    # (5)
    grown, nodes = frontier.extend(leaves)
    return Batch(
        entries=tuple(entries),
        payloads=tuple(payloads),
        nodes=tuple(nodes),
        frontier=grown,
        head=Head(
            size=head.size + len(leaves),
            leaf=previous,
            frontier=grown.encode(),
            time=moment,
            epoch=head.epoch,
        ),
        recorded=tuple(recorded),
        behind=max(0, head.time - now),
    )


def entry_of(body: dict[str, Any], record: bytes, leaf: bytes, moment: int) -> Entry:
    """The row of a receipt: its bytes, and the columns by which it is found, which say nothing else."""
    find = body.get
    return Entry(
        index=body["index"],
        leaf_hash=leaf,
        body=record,
        receipt_id=body["receipt_id"],
        time=moment,
        kind=body["kind"],
        principal=body["principal"],
        agent=find("agent", ""),
        session=find("session", ""),
        call_id="" if find("reason") == "conflict" else find("call_id", ""),
        tool=find("tool", ""),
        decision=find("decision", ""),
        reason=find("reason", ""),
        parent=find("parent", ""),
    )
