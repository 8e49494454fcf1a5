"""Recall and false alarms on labelled tool calls, in process.

    python -m benchmarks.corpus FOLDER [--out FILE] [--wrong FILE] [--against FILE] [--part look|held]

`FOLDER` holds `*.jsonl` records `{id, source, family, tool, args, label, where, needs_context, result?}`.
Each call goes through fact extraction and the content guard with no tool registered, each result
through the result guard; anything but allow counts as stopped, and so does a tier that the profile
`standard` would hold (irreversible and high, or critical). For records of the family `dlp` a finding
of category secret or pii counts as stopped too. Records are split in two parts by the hash of their
ids: rules are written looking at the part `look` alone, `held` shows what that is worth.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from aegis.core.finding import Report
from aegis.core.outcome import Outcome, Risk
from aegis.core.principal import Principal
from aegis.facts import extract, gather
from aegis.facts.model import Limits, Subject
from aegis.guards.base import Case, ResultCase
from aegis.guards.content import ContentGuard
from aegis.guards.result import ResultContentGuard
from aegis.rules import Scanner, builtin_folder, load
from aegis.rules.cache import default_cache_folder

_PRINCIPAL = Principal(id="bench", roles=frozenset({"agent"}), agent="bench")
_LIMITS = Limits()
_TABLES = ("recall", "recall_context", "false_alarms", "false_alarms_context")


class Judged(NamedTuple):
    """One record and what became of it."""

    record: dict[str, Any]
    stopped: bool
    outcome: str
    rules: tuple[str, ...]
    part: str

    @property
    def wrong(self) -> bool:
        return self.stopped is not bool(self.record["label"] == "attack")


class Judge:
    """Facts and content guards with the built-in rules and default options."""

    def __init__(self) -> None:
        scanner = Scanner(load(builtin_folder()), cache=default_cache_folder())
        self._content = ContentGuard(scanner)
        self._result = ResultContentGuard(scanner)

    def __call__(self, record: dict[str, Any]) -> Judged:
        report, held = self._call(record) if record["where"] == "call" else (self._of_result(record), False)
        categories = {finding.category for finding in report.findings}
        stopped = report.outcome is not Outcome.ALLOW or held or bool(report.missing)
        if record["family"] == "dlp" and categories & {"secret", "pii"}:
            stopped = True
        rules = tuple(dict.fromkeys(finding.rule for finding in report.findings))
        rules += (("tier",) if held else ()) + (("unparsed",) if report.missing else ())
        return Judged(record, stopped, report.outcome.word, rules, part_of(record["id"]))

    def _call(self, record: dict[str, Any]) -> tuple[Report, bool]:
        arguments = record["args"]
        facts = gather(Subject(tool=record["tool"], server=None, arguments=arguments, limits=_LIMITS))
        case = Case(
            tool=record["tool"], server=None, arguments=arguments, principal=_PRINCIPAL, agent="bench", session="",
            call_id="c", entry=None, facts=facts, tier=facts.tier, irreversible=facts.irreversible,
            effects=facts.effects, now=0,
        )  # fmt: skip
        held = facts.tier is Risk.CRITICAL or (facts.irreversible and facts.tier >= Risk.HIGH)
        return self._content.check(case), held

    def _of_result(self, record: dict[str, Any]) -> Report:
        result = record.get("result", "")
        case = ResultCase(
            tool=record["tool"], server=None, result=result, texts=extract(result, _LIMITS), principal=_PRINCIPAL,
            agent="bench", session="", entry=None, now=0,
        )  # fmt: skip
        return self._result.check_result(case)


def part_of(identifier: str) -> str:
    """`look` or `held`, by the hash of a record's id."""
    return "look" if hashlib.sha256(identifier.encode()).digest()[0] % 2 == 0 else "held"


def records(folder: Path, only: set[str]) -> Iterator[dict[str, Any]]:
    """The records of every corpus in `folder`, or of the sources in `only`."""
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem.endswith(("_episodes", "_trajectories")) or path.stem == "counts":
            continue
        if only and path.stem not in only:
            continue
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                if "args" in record and record.get("family") != "code_weakness":
                    yield record


def interval(hits: int, total: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a proportion."""
    if not total:
        return 0.0, 1.0
    z, rate = 1.96, hits / total
    centre = rate + z * z / (2 * total)
    spread = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    return (centre - spread) / (1 + z * z / total), (centre + spread) / (1 + z * z / total)


def summarise(judged: Iterable[Judged]) -> dict[str, Any]:
    """The four tables: stopped and total per source, and the mean over sources."""
    cells: dict[tuple[str, str], list[int]] = collections.defaultdict(lambda: [0, 0])
    for item in judged:
        kind = "recall" if item.record["label"] == "attack" else "false_alarms"
        cell = cells[(kind + ("_context" if item.record["needs_context"] else ""), item.record["source"])]
        cell[0] += item.stopped
        cell[1] += 1
    summary: dict[str, Any] = {}
    for table in _TABLES:
        rows = {source: cell for (kind, source), cell in sorted(cells.items()) if kind == table}
        macro = sum(hit / total for hit, total in rows.values()) / len(rows) if rows else None
        summary[table] = {"macro": macro, "sources": rows}
    return summary


def show(summary: dict[str, Any], before: dict[str, Any] | None) -> None:
    """Print the tables, with the change against an earlier summary where there is one."""
    for table in _TABLES:
        part = summary[table]
        if part["macro"] is None:
            continue
        old = before[table] if before else None
        change = f"  (was {old['macro']:.4f})" if old and old["macro"] is not None else ""
        print(f"\n{table}: macro {part['macro']:.4f}{change}")
        for source, (hit, total) in part["sources"].items():
            low, high = interval(hit, total)
            was = old["sources"].get(source) if old else None
            note = f"  was {was[0]}" if was and was[0] != hit else ""
            print(f"  {source:28s} {hit:6d} / {total:6d}  {hit / total:.4f}  [{low:.3f}, {high:.3f}]{note}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="these sources alone")
    parser.add_argument("--part", choices=("look", "held"), help="this part of every source alone")
    parser.add_argument("--out", type=Path, help="write the summary here, as JSON")
    parser.add_argument("--wrong", type=Path, help="write misses and false alarms here, as JSON lines")
    parser.add_argument("--against", type=Path, help="compare with the summary of an earlier run")
    options = parser.parse_args(arguments)
    judge, started = Judge(), time.perf_counter()
    judged = [
        judge(record)
        for record in records(options.folder, set(options.only))
        if options.part in (None, part_of(record["id"]))
    ]
    seconds = time.perf_counter() - started
    before = json.loads(options.against.read_text()) if options.against else None
    summary = summarise(judged)
    show(summary, before)
    print()
    for part in ("look", "held"):
        half = summarise(item for item in judged if item.part == part)
        figures = [f"{table} {half[table]['macro']:.4f}" for table in _TABLES if half[table]["macro"] is not None]
        print(f"{part}: {'  '.join(figures)}")
    print(f"{len(judged)} records in {seconds:.1f} s, {seconds / max(1, len(judged)) * 1e6:.0f} us a record")
    if options.out:
        options.out.write_text(json.dumps(summary, indent=1), encoding="utf-8")
    if options.wrong:
        with options.wrong.open("w", encoding="utf-8") as out:
            for item in judged:
                if item.wrong:
                    head = {"part": item.part, "outcome": item.outcome, "rules": item.rules}
                    out.write(json.dumps({**head, **item.record}, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
