"""What a report says about a period: counted from the log itself, receipt by receipt."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from aegis.core.ports import Entry, Reader
from aegis.core.times import rfc3339
from aegis.server.cockpit.verifying import Verification
from aegis.server.services import Services

LISTED: Final = 300  # approvals, changes and erasures that are listed one by one; all of them are counted
CHUNK: Final = 10_000  # leaves read in one view of the store: bounds how long it is held
MAX_NAMES: Final = 10_000  # different names that are counted apart: callers choose them


@dataclass(kw_only=True)
class Report:
    """The counts of one period; `first` and `last` are positions in the log, `None` where nothing was recorded."""

    log: str
    since: str
    until: str
    made: str
    first: int | None = None
    last: int | None = None
    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    policies: Counter[str] = field(default_factory=Counter)
    observed: int = 0
    approvals: list[dict[str, Any]] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    changes: list[dict[str, Any]] = field(default_factory=list)
    verification: Verification = field(default_factory=Verification)

    @property
    def receipts(self) -> int:
        """How many receipts the period has."""
        return sum(self.kinds.values())


def compile_report(services: Services, *, since: int, until: int, verification: Verification) -> Report:
    """The report of `since` to `until` (microseconds, both included)."""
    report = Report(
        log=services.log,
        since=rfc3339(since),
        until=rfc3339(until),
        made=rfc3339(services.clock()),
        verification=verification,
    )
    with services.store.reader() as reader:
        size = reader.head().size
        at, stop = _first_at(reader, since, size), _first_at(reader, until + 1, size)
    while at < stop:
        with services.store.reader() as reader:
            for entry in reader.entries(at, min(at + CHUNK, stop)):
                _count(report, entry)
        at += CHUNK
    return report


def _count(report: Report, entry: Entry) -> None:
    report.first = entry.index if report.first is None else report.first
    report.last = entry.index
    report.kinds[entry.kind] += 1
    if entry.kind == "result":
        report.results[entry.decision] += 1
        return
    if entry.kind == "decision":
        body = orjson.loads(entry.body)
        report.outcomes[entry.decision] += 1
        report.verdicts[body["verdict"]] += 1
        report.policies[body["policy_digest"]] += 1
        report.observed += body.get("settings", {}).get("mode") == "observe"
        _name(report.agents, entry.agent)
        _name(report.tools, entry.tool)
        if entry.decision != "allow":
            report.reasons[entry.reason] += 1
            for guard in body["guards"]:
                for rule in guard["rules"]:
                    _name(report.rules, rule)
        return
    if entry.kind == "approval":
        body = orjson.loads(entry.body)
        if body["action"] == "previewed":  # the gateway's own look, and nobody's answer
            return
        report.answers[body["action"]] += 1
        _keep(report.approvals, body)
    elif entry.kind in ("config", "revocation", "grant", "erasure", "access"):
        _keep(report.changes, orjson.loads(entry.body))


def _name(counter: Counter[str], name: str) -> None:
    counter[name if name in counter or len(counter) < MAX_NAMES else "(others)"] += 1


def _keep(rows: list[dict[str, Any]], body: dict[str, Any]) -> None:
    if len(rows) < LISTED:
        rows.append(body)


def _first_at(reader: Reader, time: int, size: int) -> int:
    """The first place whose time is at least `time`; times never run backwards along the log."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        entry = reader.entry(middle)
        if entry is not None and entry.time < time:
            low = middle + 1
        else:
            high = middle
    return low
