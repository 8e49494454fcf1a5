"""From drafts to leaves: position, chain, signature and tree, as one pure step.

(1) time never runs backwards: the log's last time is the floor
(2) every draft gets its position and becomes a signing input
(3) inputs that share a key share a signature when that is cheaper
(4) chain: each leaf holds the hash of the one before it
(5) tree: the frontier moves to the new end
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from aegis.audit.merkle import Frontier, leaf_hash
from aegis.audit.signature import sign_group
from aegis.core.canonical import canonical_record
from aegis.core.ports import Entry, Head, Node, Payload, Signer
from aegis.core.receipt import RECEIPT_VERSION, Draft, Recorded
from aegis.core.times import rfc3339

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
        signatures = sign_group([inputs[offset] for offset in offsets], signer_for(name))
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
