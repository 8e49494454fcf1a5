"""What every engine asks of leaves that are to be added."""

from __future__ import annotations

from collections.abc import Sequence

from aegis.core.ports import Entry, Head, Payload
from aegis.errors import StoreCorrupt


def check_continues(size: int, entries: Sequence[Entry], head: Head) -> None:
    """Guarantee that `entries` continue a log of `size` leaves up to `head`; raises `StoreCorrupt`."""
    for offset, entry in enumerate(entries, size):
        if entry.index != offset:
            raise StoreCorrupt(f"index {entry.index} does not continue a log of {offset} leaves")
    if head.size != size + len(entries):
        raise StoreCorrupt("the new head does not stand at the end of the new leaves")


def check_payloads(size: int, payloads: Sequence[Payload], head: Head) -> None:
    """Guarantee that every payload belongs to one of the new leaves, and to one alone; raises `StoreCorrupt`."""
    last = size - 1
    for payload in payloads:  # in the order of their leaves
        if not last < payload.index < head.size:
            raise StoreCorrupt("a payload does not belong to a new leaf of its own")
        last = payload.index
