"""Changes of a replay counted: by tool, agent, what was and what would be. Pure, and needs no server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def summary_of(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `tool`, `agent`, `before`, `after` as one row each with its `calls`, the most frequent first.

    A row that was counted already stands for as many calls as it says, so summaries of parts make that of the whole.
    """
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["tool"], row["agent"], *row["before"].values(), *row["after"].values())
        known = found.setdefault(key, {name: row[name] for name in ("tool", "agent", "before", "after")} | {"calls": 0})
        known["calls"] += row.get("calls", 1)
    return sorted(found.values(), key=lambda row: -int(row["calls"]))
