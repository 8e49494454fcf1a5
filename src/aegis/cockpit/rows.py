"""What is recorded, as rows for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from aegis.cockpit import text as words
from aegis.core.ports import Entry, Store

SHOWN: Final = ("decision", "result", "approval", "redemption", "revocation", "config", "alarm", "grant")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the feed, as data and as the text that browsers get."""

    index: int
    members: Mapping[str, Any]
    text: bytes


def row_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a receipt as a line of a list; it holds names that callers chose, and no values."""
    decision = str(body.get("decision", ""))
    return {
        "index": body["index"],
        "id": body["receipt_id"],
        "time": body["time"],
        "kind": body["kind"],
        "decision": decision,
        "word": words.outcome(decision) if decision else str(body["kind"]),
        "risk": body.get("risk", ""),
        "reason": body.get("reason", ""),
        "agent": body.get("agent", ""),
        "tool": body.get("tool", ""),
        "session": body.get("session", ""),
        "approval": body.get("approval_id", ""),
        "summary": words.summary(body),
    }


def shape(store: Store, entries: Sequence[Entry]) -> list[Row]:
    """Return the rows that stand for `entries`."""
    rows = []
    for entry in entries:
        if entry.kind not in SHOWN or (entry.kind == "result" and entry.decision == "allow"):
            continue
        members = row_of(orjson.loads(entry.body))
        text = b"id: %d\nevent: row\ndata: %s\n\n" % (entry.index, orjson.dumps(members))
        rows.append(Row(index=entry.index, members=members, text=text))
    return rows
