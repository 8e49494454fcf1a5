"""Entries, payloads and heads as an appender writes them, for tests of stores."""

from __future__ import annotations

from typing import Any

from aegis.core.ports import Entry, Head, Payload, SessionRow, Store, Transaction
from aegis.log.merkle import Frontier, leaf_hash

MICROS = 1_000_000


def entry(index: int, **columns: Any) -> Entry:
    """Make the `index`-th entry; `columns` replace what it would have by itself."""
    body = columns.pop("body", f'{{"index":{index}}}'.encode())
    values: dict[str, Any] = {
        "index": index,
        "leaf_hash": leaf_hash(body),
        "body": body,
        "receipt_id": f"r-{index}",
        "time": (index + 1) * MICROS,
        "kind": "decision",
        "principal": "p",
        "agent": "a",
        "session": "s",
        "call_id": f"c-{index}",
        "tool": "t",
        "decision": "allow",
        "reason": "none",
        "parent": "",
    }
    return Entry(**{**values, **columns})


def payload(index: int) -> Payload:
    """Make a payload that can be recognised in a file."""
    return Payload(
        index=index, salt=b"salt-%d" % index, key=b"wrapped-key-%d" % index, body=b"sealed-payload-%d" % index
    )


def append(transaction: Transaction, *entries: Entry, payloads: tuple[Payload, ...] = ()) -> Head:
    """Append `entries` with the tree that belongs to them, and give the new head."""
    before = transaction.head()
    frontier, nodes = Frontier.decode(before.frontier).extend([item.leaf_hash for item in entries])
    head = Head(
        size=before.size + len(entries),
        leaf=entries[-1].leaf_hash,
        frontier=frontier.encode(),
        time=entries[-1].time,
        epoch=before.epoch,
    )
    transaction.append(entries, payloads, nodes, head)
    return head


def grow(store: Store, count: int, **columns: Any) -> None:
    """Append `count` entries in one transaction."""
    with store.transaction() as transaction:
        start = transaction.head().size
        append(transaction, *(entry(index, **columns) for index in range(start, start + count)))


def sessions_of(entries: list[Entry]) -> list[SessionRow]:
    """Look at every entry for the sessions that a store has to list, newest first."""
    rows: dict[tuple[str, str], SessionRow] = {}
    for item in entries:
        if item.session:
            key = (item.principal, item.session)
            old = rows.get(key)
            rows[key] = SessionRow(
                session=item.session,
                principal=item.principal,
                agent=max(item.agent, old.agent if old else ""),
                first=old.first if old else item.index,
                last=item.index,
                count=(old.count if old else 0) + 1,
            )
    return sorted(rows.values(), key=lambda row: -row.last)
