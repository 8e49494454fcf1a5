"""Counting what happens against the conditions of containment: pure, and bounded by the conditions themselves.

One subject has one tally: for each condition the moments of the newest events that count, as many as the condition
needs and no more, inside of its time and no older. A condition that held starts from nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from aegis.core.behaviour import ContainedBy, ContainmentRule, Measure
from aegis.core.outcome import Outcome, Reason, Risk, outcome_of, risk_of
from aegis.gate.control import session_subject, tool_subject

CASCADE: Final = "cascade"  # the alarm that something contained reached others
CANARY_RULE: Final = "canary"  # the rule that findings of a touched canary carry
ATTACKS: Final = frozenset({
    "sql_injection", "path_traversal", "shell_injection", "prompt_injection", "sensitive_file", "data_exfiltration",
    "ssrf", "destructive", "supply_chain", "code_injection", "deserialization", "obfuscation",
})  # fmt: skip
# Refusals that follow from an earlier one, or say to wait: they count where a condition names their reason.
_NOT_COUNTED: Final = frozenset({Reason.REVOKED.value, Reason.RATE_LIMITED.value, Reason.CONFLICT.value})
_RULES: Final = itemgetter("rules")
_QUIET: Final = frozenset({Outcome.ALLOW.word, Outcome.SANITIZE.word})


class Caller(NamedTuple):
    """Whose call a receipt is about: its principal, and the root of the missions that its session runs under."""

    principal: str
    mission: str = ""


class Noted(Struct, frozen=True, kw_only=True):
    """One thing that happened, as conditions see it."""

    measures: frozenset[Measure]
    receipt: str
    subjects: Mapping[ContainedBy, str]
    agent: str = ""
    session: str = ""
    reason: str = ""
    severity: Risk = Risk.LOW
    categories: tuple[str, ...] = ()


class EventCounts(Struct, kw_only=True):
    """What is kept of one subject: by the key of a condition, the moments (microseconds) of each measure.

    Categories are kept as the moment in which each was seen last.
    """

    moments: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    categories: dict[str, dict[str, int]] = field(default_factory=dict)

    def counted_for(self, rule: ContainmentRule, now: int) -> dict[str, int]:
        """How many events of each measure lie inside of the time of a condition at `now`."""
        start = now - rule.within
        kept, seen = self.moments.get(rule.key, {}), self.categories.get(rule.key, {})
        found: dict[str, int] = {name: sum(one > start for one in kept.get(name, ())) for name in rule.counts}
        if "categories" in found:
            found["categories"] = sum(one > start for one in seen.values())
        return found

    def is_over(self, rules: Sequence[ContainmentRule], now: int) -> bool:
        """Whether nothing of it can count any more."""
        within = {rule.key: rule.within for rule in rules}
        newest = {key: max((max(one) for one in kept.values() if one), default=0) for key, kept in self.moments.items()}
        for key, seen in self.categories.items():
            newest[key] = max(newest.get(key, 0), max(seen.values(), default=0))
        return all(moment <= now - within.get(key, 0) for key, moment in newest.items())


def may_count(members: Mapping[str, Any], *, watched: bool = True) -> bool:
    """Whether a receipt can count at all: most are of calls that were allowed, and cost nothing here.

    `watched` says whether there are canaries that it can have touched.
    """
    kind = members["kind"]
    if kind == "decision" and members["decision"] not in _QUIET:
        return True
    if kind in ("decision", "result"):
        if not watched:
            return False
        return CANARY_RULE in chain.from_iterable(map(_RULES, members["guards"]))
    if kind == "alarm":
        return members.get("action") != CASCADE  # it says that others were reached, and nothing of its agent
    return kind == "approval" and members.get("action") == "denied"


def note(members: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], caller: Caller) -> Noted | None:
    """What a receipt counts as; `caller` is whose call it is about. `None` where it counts as nothing."""
    kind, reason, action = members["kind"], members.get("reason", ""), members.get("action", "")
    measures: set[Measure] = set()
    if kind == "decision" and members["decision"] not in _QUIET:
        measures.add("blocked" if outcome_of(members["decision"]) is Outcome.BLOCK else "held")
        if reason == Reason.BUDGET_EXHAUSTED.value:
            measures.add("budget")
    elif kind == "alarm":
        measures |= {"alarms", "undecided"} if action == "uncovered" else {"alarms"}
    elif kind == "approval" and action == "denied":
        measures.add("denied")
    if any(CANARY_RULE in one["rules"] for one in members.get("guards", ())):
        measures.add("canary")
    categories = tuple(dict.fromkeys(one["category"] for one in findings if one["category"] in ATTACKS))
    if categories and measures & {"blocked", "held"}:
        measures.add("categories")
    if not measures:
        return None
    severity = max((risk_of(one["severity"]) for one in findings), default=_risk(members))
    return Noted(
        measures=frozenset(measures),
        receipt=members["receipt_id"],
        subjects=_subjects(members, caller),
        agent=members.get("agent", ""),
        session=members.get("session", ""),
        reason=reason,
        severity=severity,
        categories=categories,
    )


def _risk(members: Mapping[str, Any]) -> Risk:
    """The severity of what has no findings any more: the tier of the call stands for it."""
    return risk_of(members["risk"]) if "risk" in members else Risk.LOW


def _subjects(members: Mapping[str, Any], caller: Caller) -> dict[ContainedBy, str]:
    found: dict[ContainedBy, str] = {}
    if members.get("agent"):
        found["agent"] = members["agent"]
    if members.get("session"):
        found["session"] = session_subject(caller.principal, members["session"])
    if caller.mission:
        found["mission"] = caller.mission
    if members.get("tool"):
        found["tool"] = tool_subject(members.get("server"), members["tool"])
    return found


def counted(
    tally: EventCounts, rules: Sequence[ContainmentRule], noted: Noted, of: ContainedBy, now: int
) -> ContainmentRule | None:
    """Count `noted` at `now` in the tally of one subject; the first condition that holds by it, or `None`.

    Everything in the tally that no condition asks for any more is forgotten.
    """
    own = [rule for rule in rules if rule.of == of]
    keys = {rule.key for rule in own}
    for kept in (tally.moments, tally.categories):
        for key in [key for key in kept if key not in keys]:
            del kept[key]
    fired: ContainmentRule | None = None
    for rule in own:
        if not _count(tally, rule, noted, now) or fired is not None:
            continue
        fired = rule
        tally.moments.pop(rule.key, None)
        tally.categories.pop(rule.key, None)
    return fired


def _count(tally: EventCounts, rule: ContainmentRule, noted: Noted, now: int) -> bool:
    """Count for one condition; whether it holds now, and holds by this event."""
    start, moved, holds = now - rule.within, False, True
    for measure, needed in rule.counts.items():
        matches = measure in noted.measures and _is_meant(rule, noted, measure)
        if measure == "categories":
            seen = tally.categories.setdefault(rule.key, {})
            if matches:
                seen.update(dict.fromkeys(noted.categories, now))
            for name in [name for name, moment in seen.items() if moment <= start]:
                del seen[name]
            number = len(seen)
        else:
            moments = tally.moments.setdefault(rule.key, {}).setdefault(measure, [])
            if matches:
                moments.append(now)
            moments[:] = [moment for moment in moments if moment > start][-needed:]
            number = len(moments)
        moved = moved or matches
        holds = holds and number >= needed
    return moved and holds


def _is_meant(rule: ContainmentRule, noted: Noted, measure: Measure) -> bool:
    """Whether the reason and severity of an event are those that the condition asks for."""
    if measure not in ("blocked", "held", "categories"):
        return True
    if rule.reason:
        return noted.reason == rule.reason and noted.severity >= rule.severity
    return noted.reason not in _NOT_COUNTED and noted.severity >= rule.severity
