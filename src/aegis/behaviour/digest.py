"""The digest of a period: what was told, what changed, what was tuned and what was nearly missed.

It is made of receipts alone, in their order: whoever makes it of the same log and period has the same words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import orjson
from msgspec import Struct

from aegis.behaviour.alerts import group_alarms
from aegis.core.outcome import Risk, risk_of
from aegis.core.ports import Entry, Reader
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall

WEEK_US: Final = 7 * 86_400 * MICROS
MAX_WALKED: Final = 200_000  # newest receipts of a period that are looked at: bounds how long an answer takes
LISTED: Final = 50  # changes that are listed one by one; all of them are counted
NEAR: Final = 20  # calls that were nearly missed, each with those that are like it
MAX_KINDS: Final = 10_000  # kinds of such calls that are counted apart: agents choose their names
_CHANGES: Final = frozenset({"config", "revocation", "grant", "key", "erasure"})
_TUNED: Final = ("alert_", "canary_", "draft")


class NearMiss(Struct, frozen=True, kw_only=True):
    """Calls of one agent and tool that ran although they were risky, or although a guard noted something of them."""

    agent: str
    tool: str
    risk: Risk
    noted: tuple[str, ...]
    count: int
    first: int
    last: int
    receipt: str

    @property
    def rank(self) -> tuple[int, int, int, int, str, str]:
        """What it is ordered by: the riskiest, the most noted, the most frequent and the newest first."""
        return (-self.risk, -len(self.noted), -self.count, -self.last, self.agent, self.tool)


def first_at(reader: Reader, time: int, size: int) -> int:
    """Return the first place whose time is at least `time`; times never run backwards along the log."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        entry = reader.entry(middle)
        if entry is not None and entry.time < time:
            low = middle + 1
        else:
            high = middle
    return low


def digest_of(reader: Reader, *, since: int, until: int) -> dict[str, Any]:
    """Return the digest of `since` to `until` (microseconds, both included)."""
    if since > until:
        raise InvalidCall("`since` is not before `until`")
    size = reader.head().size
    start, stop = first_at(reader, since, size), first_at(reader, until + 1, size)
    begun = max(start, stop - MAX_WALKED)
    decisions, answers, policies = Counter[str](), Counter[str](), Counter[str]()
    changed, tuned, alarms, near = Changes(), Changes(), list[Entry](), dict[tuple[Any, ...], NearMiss]()
    for entry in reader.entries(begun, stop):
        if entry.kind == "decision":
            members = orjson.loads(entry.body)
            decisions[entry.decision] += 1
            policies[members.get("policy_digest", "")] += 1
            _note_near(near, entry, members)
        elif entry.kind == "approval":
            answers[orjson.loads(entry.body).get("action", "")] += 1
        elif entry.kind in _CHANGES:
            action: str = orjson.loads(entry.body).get("action", entry.kind)
            (tuned if action.startswith(_TUNED) else changed).add(entry, action)
        if entry.kind in ("alarm", "revocation"):
            alarms.append(entry)
    told = sorted(group_alarms(alarms).values(), key=lambda one: (-one.severity, -one.count, -one.index))
    return {
        "since": rfc3339(since),
        "until": rfc3339(until),
        "complete": begun == start,
        "receipts": stop - begun,
        "policies": len(policies),
        "decisions": dict(sorted(decisions.items())),
        "answers": dict(sorted(answers.items())),
        "alerts": [
            {
                "id": one.id,
                "cause": one.cause,
                "severity": one.severity.word,
                "count": one.count,
                "first": rfc3339(one.first),
                "last": rfc3339(one.last),
                "receipt": one.receipt,
            }
            for one in told[:LISTED]
        ],
        "changed": changed.shown(),
        "tuned": tuned.shown(),
        "nearly_missed": [_shown(one) for one in sorted(near.values(), key=lambda one: one.rank)[:NEAR]],
    }


class Changes:
    """What people and files changed: each kind counted, and the newest listed."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._listed: list[dict[str, str]] = []

    def add(self, entry: Entry, action: str) -> None:
        """Count one change."""
        self._counts[action] += 1
        one = {"time": rfc3339(entry.time), "kind": entry.kind, "action": action, "by": entry.principal}
        one["receipt"] = entry.receipt_id
        self._listed = [one, *self._listed[: LISTED - 1]]

    def shown(self) -> dict[str, Any]:
        """Return the counts, and the newest of them."""
        return {"counts": dict(sorted(self._counts.items())), "items": self._listed}


def _note_near(near: dict[tuple[Any, ...], NearMiss], entry: Entry, members: Mapping[str, Any]) -> None:
    """Count a call that was let through, where it was risky or something was noted of it."""
    if entry.decision != "allow":
        return
    risk = risk_of(members["risk"]) if "risk" in members else Risk.LOW
    noted = tuple(sorted({rule for one in members.get("guards", ()) for rule in one["rules"]}))
    if risk < Risk.HIGH and not noted:
        return
    key = (entry.agent, entry.tool, risk, noted)
    before = near.get(key)
    if before is None and len(near) >= MAX_KINDS:
        return
    near[key] = NearMiss(
        agent=entry.agent,
        tool=entry.tool,
        risk=risk,
        noted=noted,
        count=1 if before is None else before.count + 1,
        first=entry.time if before is None else before.first,
        last=entry.time,
        receipt=entry.receipt_id,
    )


def _shown(one: NearMiss) -> dict[str, Any]:
    return {
        "agent": one.agent,
        "tool": one.tool,
        "risk": one.risk.word,
        "noted": list(one.noted),
        "count": one.count,
        "first": rfc3339(one.first),
        "last": rfc3339(one.last),
        "receipt": one.receipt,
    }


def digest_text(digest: Mapping[str, Any]) -> str:
    """Return a digest as text, with what asks for a person first."""
    period = f"From {digest['since']} to {digest['until']}"
    lines = [f"{period}: {digest['receipts']} receipts, {_counts(digest['decisions'])}"]
    if not digest["complete"]:
        lines.append("Older receipts of this time were left out.")
    if digest["answers"]:
        lines.append(f"Held calls: {_counts(digest['answers'])}")
    lines += ["", "Alerts"]
    lines += [
        f"- {one['severity']}: {one['cause']}, {_times(one['count'])}, last {one['last']} ({one['receipt']})"
        for one in digest["alerts"]
    ] or ["- none"]
    for name, title in (("changed", "What changed"), ("tuned", "What was tuned")):
        lines += ["", f"{title}: {_counts(digest[name]['counts'])}"]
        lines += [f"- {one['time']} {one['kind']}: {one['action']}, by {one['by']}" for one in digest[name]["items"]]
    lines += ["", "Nearly missed: calls that ran, risky or with something noted of them"]
    lines += [
        f"- {one['tool']} by {one['agent']}, risk {one['risk']}"
        f"{', noted: ' + ', '.join(one['noted']) if one['noted'] else ''}; {_times(one['count'])} ({one['receipt']})"
        for one in digest["nearly_missed"]
    ] or ["- none"]
    return "\n".join(lines)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts.items()) or "nothing"
