"""What happened in a run, guard by guard, from the log alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import orjson

from aegis.core.ports import Reader, Search

_PAGE: Final = 1_000
_KINDS: Final = frozenset({"run", "decision", "result", "approval", "redemption", "judge"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One answer of one guard (or of a person), in the order of the log."""

    index: int
    time: str
    stage: str
    subject: str
    guard: str
    outcome: str
    reason: str
    rules: tuple[str, ...] = ()


def explain(reader: Reader, run_id: str) -> Iterator[Step]:
    """Every step of the run, oldest first; nothing where the log holds none of it."""
    for index in _indexes(reader, run_id):
        entry = reader.entry(index)
        if entry is None:
            continue
        receipt = orjson.loads(entry.body)
        stage = receipt.get("action", entry.kind) if entry.kind == "run" else entry.kind
        subject = receipt.get("tool", "")
        decided = receipt.get("decision", receipt.get("action", ""))
        rows = receipt.get("guards") or [{"guard": "", "outcome": decided, "rules": []}]
        for row in rows:
            yield Step(
                index=index,
                time=receipt["time"],
                stage=stage,
                subject=subject,
                guard=row["guard"],
                outcome=row["outcome"],
                reason=receipt.get("reason", "none"),
                rules=tuple(row["rules"]),
            )


def _indexes(reader: Reader, run_id: str) -> list[int]:
    found: list[int] = []
    before: int | None = None
    while page := reader.search(Search(session=run_id, before=before, limit=_PAGE)):
        found += [entry.index for entry in page if entry.kind in _KINDS]
        before = page[-1].index
    return found[::-1]
