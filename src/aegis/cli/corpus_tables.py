"""The four tables of a measurement: attacks and benign records, each with and without what needs context."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aegis.cli.corpus import Judged

TABLES: Final = ("recall", "recall_context", "false_alarms", "false_alarms_context")
_Z: Final = 1.96  # of a 95 % interval
Summary = dict[str, dict[str, Any]]


def interval(hits: int, total: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a proportion."""
    if not total:
        return 0.0, 1.0
    rate = hits / total
    centre = rate + _Z * _Z / (2 * total)
    spread = _Z * math.sqrt(rate * (1 - rate) / total + _Z * _Z / (4 * total * total))
    whole = 1 + _Z * _Z / total
    return max(0.0, (centre - spread) / whole), min(1.0, (centre + spread) / whole)


def summarise(judged: Iterable[Judged]) -> Summary:
    """Stopped and total by table and source, and the mean over sources, so that no long list drowns the others."""
    cells: dict[tuple[str, str], list[int]] = collections.defaultdict(lambda: [0, 0])
    for item in judged:
        kind = "recall" if item.record["label"] == "attack" else "false_alarms"
        cell = cells[(kind + ("_context" if item.record["needs_context"] else ""), item.record["source"])]
        cell[0] += item.stopped
        cell[1] += 1
    summary: Summary = {}
    for table in TABLES:
        rows = {source: tuple(cell) for (kind, source), cell in sorted(cells.items()) if kind == table}
        if rows:
            macro = sum(hits / total for hits, total in rows.values()) / len(rows)
            summary[table] = {"macro": macro, "sources": rows}
    return summary


def rows_of(summary: Summary, before: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """A row for each table and source, the mean first; with what it was before, where there was an earlier run."""
    rows: list[dict[str, Any]] = []
    for table, part in summary.items():
        old = (before or {}).get(table, {})
        rows.append({"table": table, "source": "(mean)", "share": part["macro"], "was": old.get("macro")})
        for source, (hits, total) in part["sources"].items():
            earlier = old.get("sources", {}).get(source)
            low, high = interval(hits, total)
            rows.append(
                {
                    "table": table,
                    "source": source,
                    "stopped": hits,
                    "of": total,
                    "share": hits / total,
                    "low": low,
                    "high": high,
                    "was": earlier[0] / earlier[1] if earlier and earlier[1] else None,
                }
            )
    return rows
