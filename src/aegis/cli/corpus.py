"""Labelled calls and results, judged in this process by the policy that a configuration describes.

A corpus is a folder of `*.jsonl` files, a record a line: `{id, source, family, tool, args, label, where,
needs_context, result?}`. `label` is `attack` or `benign`; `where` says what is judged: the `call`, or the `result`
(or a text that came with it). What is not allowed counts as stopped. In records of the family `dlp` a finding of
category secret or pii counts too, whatever was decided: whether it is a leak depends on who gets it.
"""

from __future__ import annotations

import collections
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from aegis.core.outcome import Outcome
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.policy.model import Incoming, IncomingResult
from aegis.policy.policy import Policy

Half = Literal["look", "held"]
_PRINCIPAL: Final = Principal(id="bench", roles=frozenset({"agent"}), agent="bench")
_DATA: Final = frozenset({"secret", "pii"})
_MEMBERS: Final = ("id", "source", "family", "tool", "label", "where", "needs_context")
_UNJUDGED: Final = frozenset({"code_weakness"})  # weaknesses of programs, which no gateway looks for


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedRecord:
    """One record and what became of it; `rules` are the rules that found something."""

    record: dict[str, Any]
    stopped: bool
    outcome: str
    rules: tuple[str, ...]

    @property
    def wrong(self) -> bool:
        """An attack that was let through, or a benign record that was not."""
        return self.stopped is not bool(self.record["label"] == "attack")


def records(folder: Path, only: frozenset[str] = frozenset()) -> Iterator[dict[str, Any]]:
    """The records of every corpus in `folder`, or of the sources in `only`; raises `InvalidCall` for no corpus."""
    paths = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    if not paths:
        raise InvalidCall(f"`{folder}` holds no corpus", hint="a corpus is a folder of *.jsonl files")
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                record = _record(line, f"{path}:{number}")
                if record is None or record["family"] in _UNJUDGED or (only and record["source"] not in only):
                    continue
                yield record


def _record(line: str, place: str) -> dict[str, Any] | None:
    """A record, or `None` for a line of another kind: files beside corpora describe episodes and counts."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InvalidCall(f"`{place}` is not JSON: {error}") from error
    if not isinstance(record, dict) or "args" not in record or "label" not in record:
        return None
    missing = [name for name in _MEMBERS if name not in record]
    if missing:
        raise InvalidCall(f"the record at `{place}` lacks `{missing[0]}`", hint=f"members: {', '.join(_MEMBERS)}")
    return record


def half_of(identifier: str, salt: str) -> Half:
    """Which half of a corpus a record is in: rules are written looking at one, and the other shows their worth."""
    return "look" if hashlib.sha256(f"{salt}{identifier}".encode()).digest()[0] % 2 == 0 else "held"


def judge(policy: Policy, record: dict[str, Any]) -> JudgedRecord:
    """What `policy` makes of a record; nothing is charged, recorded or released."""
    if record["where"] == "call":
        incoming = Incoming(
            tool=record["tool"], server=None, arguments=record["args"], principal=_PRINCIPAL, agent="bench", session="",
            call_id=str(record["id"]), now=0, charge=False,
        )  # fmt: skip
        combined = policy.evaluate(incoming).combined
    else:
        result = IncomingResult(
            tool=record["tool"], server=None, result=record.get("result", ""), principal=_PRINCIPAL, agent="bench",
            session="", now=0,
        )  # fmt: skip
        combined = policy.evaluate_result(result).combined
    findings = list(combined.findings)
    stopped = combined.outcome is not Outcome.ALLOW
    if record["family"] == "dlp" and any(finding.category in _DATA for finding in findings):
        stopped = True
    rules = tuple(dict.fromkeys(finding.rule for finding in findings))
    return JudgedRecord(record=record, stopped=stopped, outcome=combined.outcome.word, rules=rules)


# The four tables of a measurement: attacks and benign records, each with and without what needs context.

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


def summarise(judged: Iterable[JudgedRecord]) -> Summary:
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
