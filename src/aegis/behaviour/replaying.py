"""What conditions of containment would have done over the log: the same counting, and nothing is written.

The log is walked once, in its order and by its own times. Calls that a containment would have met were decided without
it then, and are told as such: how many would have been refused or held, and how many of them had been let through.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec import Struct, field

from aegis.behaviour.containing import EventCounts, Noted, counted, may_count, note
from aegis.behaviour.containment import caller_of, contained_by, counts_of
from aegis.core.behaviour import ContainedBy, ContainmentRule
from aegis.core.ports import Entry, Reader
from aegis.core.times import rfc3339
from aegis.detect.fold import name_skeleton
from aegis.gate.control import Contained, session_subject, tool_subject
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload

MAX_WALKED: Final = 50_000  # receipts of one walk over the log: bounds how long an answer takes
MAX_TALLIES: Final = 100_000  # subjects that one walk counts at once: bounds its memory
MAX_FIRED: Final = 1_000  # what one answer lists
_LET_THROUGH: Final = frozenset({"allow", "sanitize"})

NEAREST: Final = 100  # newest calls of an agent whose subjects are looked at
Findings = Callable[[Reader, Entry], Sequence[Mapping[str, Any]]]


class WouldHave(Struct, kw_only=True):
    """One condition that would have held, and what would have come of it."""

    rule: ContainmentRule
    time: int
    receipt: str
    agent: str
    session: str
    contained: Contained | None
    met: int = 0
    had_run: int = 0


class Walked(Struct, kw_only=True):
    """What a walk over the log came to; `last` is the index behind it, `complete` says that nothing was left out."""

    fired: list[WouldHave] = field(default_factory=list)
    looked_at: int = 0
    last: int = 0
    complete: bool = True


def walk(
    reader: Reader, rules: Sequence[ContainmentRule], findings: Findings, *, start: int, stop: int, since: int = 0
) -> Walked:
    """Count the receipts with `start <= index < stop`, and not before the time `since`, against `rules`."""
    walked = Walked(last=start)
    tallies: OrderedDict[tuple[ContainedBy, str], EventCounts] = OrderedDict()
    in_force: dict[tuple[str, str], WouldHave] = {}
    for entry in reader.entries(start, stop):
        walked.last = entry.index + 1
        if entry.time < since:
            continue
        walked.looked_at += 1
        body = orjson.loads(entry.body)
        if entry.kind == "decision":
            _meet(in_force, entry, body)
        if not may_count(body):
            continue
        noted = note(body, findings(reader, entry), caller_of(reader, body))
        if noted is None or _is_refused(in_force, entry, body):
            continue
        for fired in _counted(tallies, rules, noted, entry.time):
            if len(walked.fired) == MAX_FIRED:
                walked.complete = False
                return walked
            walked.fired.append(fired)
            if fired.contained is not None:
                in_force[fired.contained.of, fired.contained.subject] = fired
    return walked


def _counted(
    tallies: OrderedDict[tuple[ContainedBy, str], EventCounts], rules: Sequence[ContainmentRule], noted: Noted, now: int
) -> Iterator[WouldHave]:
    for of, subject in noted.subjects.items():
        if not any(rule.of == of for rule in rules):
            continue
        tally = tallies.setdefault((of, subject), EventCounts())
        tallies.move_to_end((of, subject))
        if len(tallies) > MAX_TALLIES:
            tallies.popitem(last=False)
        rule = counted(tally, rules, noted, of, now)
        if rule is not None:
            one = contained_by(rule, subject, now, receipt=noted.receipt, agent=noted.agent, session=noted.session)
            yield WouldHave(
                rule=rule,
                time=now,
                receipt=noted.receipt,
                agent=noted.agent,
                session=noted.session,
                contained=one,
            )


def subjects_in(entry: Entry, body: Mapping[str, Any]) -> Iterator[tuple[ContainedBy, str]]:
    """Every subject of a call."""
    yield "agent", name_skeleton(entry.agent)
    if entry.session:
        yield "session", session_subject(entry.principal, entry.session)
    yield "tool", tool_subject(body.get("server"), entry.tool)
    for mission in body.get("lineage", ()):
        yield "mission", mission


def _meet(in_force: Mapping[tuple[str, str], WouldHave], entry: Entry, body: Mapping[str, Any]) -> None:
    """Count the call where it would have met something contained."""
    if not in_force:
        return
    for subject in subjects_in(entry, body):
        met = in_force.get(subject)
        if met is not None and met.contained is not None and met.contained.holds_at(entry.time):
            met.met += 1
            met.had_run += entry.decision in _LET_THROUGH
            return


def _is_refused(in_force: Mapping[tuple[str, str], WouldHave], entry: Entry, body: Mapping[str, Any]) -> bool:
    """Whether the call would have been refused before anything counted it."""
    if not in_force or entry.kind != "decision":
        return False
    found = [in_force[subject].contained for subject in subjects_in(entry, body) if subject in in_force]
    return any(one is not None and one.does != "hold" and one.holds_at(entry.time) for one in found)


def would_have(parts: Parts, rules: Sequence[ContainmentRule], since: int) -> dict[str, Any]:
    """Return what `rules` would have done over the newest receipts since a time (microseconds)."""

    def findings(reader: Reader, entry: Entry) -> Sequence[Mapping[str, Any]]:
        payload, _ = load_payload(parts, reader, entry)
        return () if payload is None else payload.get("findings", ())

    with parts.store.reader() as reader:
        size = reader.head().size
        start = max(0, size - MAX_WALKED)
        walked = walk(reader, rules, findings, start=start, stop=size, since=since)
        first = reader.entry(start)
    complete = walked.complete and (start == 0 or (first is not None and first.time <= since))
    return {"looked_at": walked.looked_at, "complete": complete, "items": [_fired(one) for one in walked.fired]}


def nearest(
    reader: Reader, rules: Sequence[ContainmentRule], agent: str, newest: Sequence[Entry], now: int
) -> list[dict[str, Any]]:
    """Return for each condition how near it is: by the agent, or by the one of its newest subjects that is nearest."""
    subjects: dict[ContainedBy, dict[str, None]] = {"agent": {agent: None}, "session": {}, "mission": {}, "tool": {}}
    for entry in newest[:NEAREST]:
        for of, subject in subjects_in(entry, orjson.loads(entry.body)):
            if of != "agent":
                subjects[of][subject] = None
    found: list[dict[str, Any]] = []
    for rule in rules:
        counted = {
            subject: counts_of(reader, rule.of, subject).counted_for(rule, now)
            for subject in subjects[rule.of] or ("",)
        }
        subject = max(counted, key=lambda one: min(counted[one][name] / most for name, most in rule.counts.items()))
        found.append({
            "cause": rule.words,
            "of": rule.of,
            "subject": subject.replace("\n", "/").removeprefix("/"),
            "do": rule.does,
            "counted": counted[subject],
            "needed": dict(rule.counts),
        })  # fmt: skip
    return found


def _fired(one: WouldHave) -> dict[str, Any]:
    return {
        "time": rfc3339(one.time),
        "receipt": one.receipt,
        "cause": one.rule.words,
        "of": one.rule.of,
        "do": one.rule.does,
        "agent": one.agent,
        "session": one.session,
        "until": rfc3339(one.contained.until) if one.contained is not None and one.contained.until else None,
        "calls": one.met,
        "had_run": one.had_run,
    }
