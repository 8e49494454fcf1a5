"""Payloads that are old enough to go, but for those of calls that wait for a person or may still be made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from aegis.approvals.values import COLLECTION as APPROVALS
from aegis.approvals.values import from_document
from aegis.core.ports import Entry, Reader
from aegis.core.times import MICROS

KINDS: Final = frozenset({"decision", "result", "judge"})  # a session's task is needed while the session goes on
STEP: Final = 500  # leaves looked at in one step
REDEEMABLE_US: Final = 24 * 3_600 * MICROS  # longer than any approved call can still be made
_PAGE: Final = 1_000


@dataclass(kw_only=True)
class Erased:
    """What was asked for, how far it is, and what it came to. `held` were left: they wait for an answer."""

    days: int = 0
    agent: str = ""
    tool: str = ""
    at: int = 0
    size: int = 0
    erased: int = 0
    held: int = 0


def next_old(reader: Reader, told: Erased, *, end: int, now: int) -> tuple[Sequence[Entry], bool]:
    """Return the next entries from before `end` whose payloads are to go, and whether there may be more."""
    told.size = reader.head().size
    looked = list(islice(reader.entries(told.at, min(told.at + STEP, told.size)), STEP))
    waiting = _waiting(reader, now)
    found: list[Entry] = []
    for entry in looked:
        if entry.time >= end:
            return found, False
        told.at = entry.index + 1
        if not _is_meant(entry, told) or reader.payload(entry.index) is None:
            continue
        if entry.receipt_id in waiting:
            told.held += 1
            continue
        found.append(entry)
    return found, bool(looked)


def _is_meant(entry: Entry, told: Erased) -> bool:
    return entry.kind in KINDS and told.agent in ("", entry.agent) and told.tool in ("", entry.tool)


def _waiting(reader: Reader, now: int) -> frozenset[str]:
    """Return the decisions behind calls that are held now, or were approved and may still be made."""
    found: set[str] = set()
    for state in ("pending", "approved"):
        after = ""
        while rows := reader.documents(APPROVALS, state=state, after=after, limit=_PAGE):
            for approval in map(from_document, rows):
                fresh = approval.resolved_at is None or now - approval.resolved_at < REDEEMABLE_US
                if approval.state_at(now) == state and fresh:
                    found |= {approval.decision_id, approval.narrowed_by or approval.decision_id}
            after = rows[-1].key
    return frozenset(found)
