"""Alerts that people can live with: those of one cause are one group, which can be seen and muted for a while.

Groups are made of the receipts of alarms alone, so that every gateway and every reader of the log finds the same. What
a person says of a group is a document beside them and a receipt of its own. A mute ends by itself and silences the
telling, never what is told of: the alarm is on record, its group is listed, and what was contained stays contained.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec import Struct, structs, to_builtins

from aegis.core.behaviour import condition_in_words
from aegis.core.canonical import SALT_BYTES, canonical, payload_commitment, sha256
from aegis.core.json import decode
from aegis.core.outcome import Outcome, Risk
from aegis.core.ports import Document, Entry, Reader, Search, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall
from aegis.gate.control import MAX_REASON_CHARS
from aegis.gate.events import new_id
from aegis.log.writer import Unit

MARKS: Final = "alert_marks"
RULES: Final = "alert_rules"
WINDOW_US: Final = 7 * 86_400 * MICROS  # alarms that are older are in the log, and in no group
LOOKED_AT: Final = 2_000  # newest receipts of one kind that groups are made of: bounds one look
MIN_MUTE_S: Final = 60
MAX_MUTE_S: Final = 30 * 86_400
_GATE: Final = "gate"
_ID_CHARS: Final = 16
_CANARY: Final = "canary"
# Receipts of telling itself: they would make groups of groups.
TELLING: Final = frozenset({"alert_alarms", "alert_digest", "alert_escalated"})
# What shakes the log itself, or stops everything: never muted, like whatever holds a canary or ends in a revocation.
_CRITICAL: Final = frozenset({"kill", "mark_missing", "rollback_accepted", "documents_adopted"})
_HIGH: Final = frozenset({"tool-refused"})
# What an alarm says to a person who has not read about it.
_SAID: Final[Mapping[str, str]] = {
    "kill": "every agent was stopped by a person",
    "containment": "{who} met a condition of containment: {why}",
    "cascade": "other sessions were reached by what {who} wrote, which is contained",
    "drift": "a session of {who} went far from what its user asked for",
    "uncovered": "something ran without a decision: {who}",
    "tool-refused": "a tool was refused for what it says about itself: {who}",
    "approver_fatigue": "a person answers held calls faster than they can be read",
    "mark_missing": "the log was opened without the mark of its end",
    "rollback_accepted": "a log that lacks its newest receipts was accepted by a person",
    "documents_adopted": "documents of the store were taken as they were found, without their seal",
}
_OTHER: Final = "{action}: {who}"


class AlertGroup(Struct, frozen=True, kw_only=True):
    """The alarms of one cause: the same action and rules, of one agent, or of one tool where no agent is named."""

    id: str
    action: str
    rules: tuple[str, ...]
    agent: str
    tool: str
    severity: Risk
    count: int
    first: int
    last: int
    receipt: str
    index: int
    sessions: int

    @property
    def cause(self) -> str:
        """What it is about, in words."""
        who = f"the agent `{self.agent}`" if self.agent else f"the tool `{self.tool}`" if self.tool else "a session"
        why = ", ".join(map(condition_in_words, self.rules))
        return _SAID.get(self.action, _OTHER).format(who=who, why=why, action=self.action.replace("_", " "))

    @property
    def words(self) -> str:
        """The group in one line: how often, since when and until when."""
        if self.count == 1:
            return f"{self.cause}: once, at {rfc3339(self.last)}"
        return f"{self.cause}: {self.count} times from {rfc3339(self.first)} to {rfc3339(self.last)}"


class AlertMark(Struct, frozen=True, kw_only=True):
    """What people said of one group: since when somebody has seen it, and until when nobody is told of it."""

    muted_until: int = 0
    muted_by: str = ""
    reason: str = ""
    seen_at: int = 0
    seen_by: str = ""

    def mutes(self, severity: Risk, now: int) -> bool:
        """Whether nobody is told of a group of this severity at `now`; what is critical is always told."""
        return severity < Risk.CRITICAL and now < self.muted_until


UNMARKED: Final = AlertMark()
Step = Callable[[AlertGroup, AlertMark], AlertMark]


def group_id(action: str, rules: Sequence[str], agent: str = "", tool: str = "") -> str:
    """Return the id of a group, which is that of its cause: it is the same tomorrow and in another gateway."""
    whole = canonical([action, sorted(rules), agent, "" if agent else tool])
    return sha256(whole).removeprefix("sha-256:")[:_ID_CHARS]


def group_alarms(entries: Iterable[Entry]) -> dict[str, AlertGroup]:
    """Group receipts, oldest first, by their cause; whatever is not of an alarm is passed over."""
    groups: dict[str, AlertGroup] = {}
    sessions: dict[str, set[str]] = {}
    for entry in entries:
        members = orjson.loads(entry.body)
        found = _of_entry(entry, members)
        if found is None:
            continue
        before = groups.get(found.id)
        if entry.kind == "revocation" and found.action != "kill":  # belongs to the alarm that was recorded with it
            if before is not None and before.severity < found.severity:
                groups[found.id] = structs.replace(before, severity=found.severity)
            continue
        seen = sessions.setdefault(found.id, set())
        if entry.session:
            seen.add(entry.session)
        groups[found.id] = structs.replace(
            found,
            severity=found.severity if before is None else max(before.severity, found.severity),
            count=1 if before is None else before.count + 1,
            first=entry.time if before is None else before.first,
            sessions=len(seen),
        )
    return groups


def _of_entry(entry: Entry, members: Mapping[str, Any]) -> AlertGroup | None:
    """Return the group of one receipt alone, or `None` where it is of no alarm."""
    action: str = members.get("action", "")
    guards = members.get("guards", ())
    rules = tuple(sorted({rule for one in guards for rule in one["rules"]}))
    if entry.kind == "revocation":
        if action != "kill" and (entry.principal != _GATE or not guards):
            return None
        severity = Risk.CRITICAL if action in ("kill", "revoke") else Risk.LOW
        action = action if action == "kill" else "containment"
    elif entry.kind == "alarm" and action not in TELLING:
        severity = _severity(action, rules, guards)
    else:
        return None
    agent = "" if action == "kill" else entry.agent
    tool = "" if agent else entry.tool
    return AlertGroup(
        id=group_id(action, rules, agent, tool), action=action, rules=rules, agent=agent, tool=tool,
        severity=severity, count=1, first=entry.time, last=entry.time, receipt=entry.receipt_id, index=entry.index,
        sessions=0,
    )  # fmt: skip


def _severity(action: str, rules: Sequence[str], guards: Sequence[Mapping[str, Any]]) -> Risk:
    if action in _CRITICAL or any(rule.startswith(_CANARY) for rule in rules):
        return Risk.CRITICAL
    refused = any(one["outcome"] == Outcome.BLOCK.word for one in guards)
    return Risk.HIGH if refused or action in _HIGH else Risk.MEDIUM


def read_groups(reader: Reader, now: int) -> tuple[dict[str, AlertGroup], bool]:
    """Return the groups of the last days, by id, and whether every alarm of them was looked at.

    The gate's own alarms are looked for apart: no agent can push them out by making many of its own.
    """
    since, entries, complete = now - WINDOW_US, dict[int, Entry](), True
    for asked in (
        Search(kind="alarm", since=since, limit=LOOKED_AT),
        Search(kind="alarm", principal=_GATE, since=since, limit=LOOKED_AT),
        Search(kind="revocation", since=since, limit=LOOKED_AT),
    ):
        found = reader.search(asked)
        complete = complete and len(found) < LOOKED_AT
        entries.update((one.index, one) for one in found)
    return group_alarms(entries[index] for index in sorted(entries)), complete


def read_marks(reader: Reader) -> dict[str, AlertMark]:
    """Return what people said, by the id of the group."""
    return {one.key: decode(one.body, AlertMark) for one in _stored_marks(reader)}


def _stored_marks(reader: Reader) -> list[Document]:
    found: list[Document] = []
    after = ""
    while page := reader.documents(MARKS, after=after):
        after = page[-1].key
        found += page
    return found


def list_alerts(reader: Reader, now: int, link: str) -> dict[str, Any]:
    """Return the groups as they are shown, the newest first; `link` is where people read, empty where nobody said."""
    groups, complete = read_groups(reader, now)
    marks = read_marks(reader)
    newest = sorted(groups.values(), key=lambda one: -one.index)
    items = [_shown(reader, one, marks.get(one.id, UNMARKED), now, link) for one in newest]
    return {"items": items, "complete": complete, "next": None}


def _shown(reader: Reader, group: AlertGroup, mark: AlertMark, now: int, link: str) -> dict[str, Any]:
    muted = mark.mutes(group.severity, now)
    rule = reader.document(RULES, group.rules[0]) if group.rules and group.action.startswith("alert_") else None
    return {
        "id": group.id,
        "cause": group.cause if rule is None else f"the rule `{orjson.loads(rule.body)['name']}` held",
        "action": group.action,
        "agent": group.agent,
        "tool": group.tool,
        "severity": group.severity.word,
        "count": group.count,
        "sessions": group.sessions,
        "first": rfc3339(group.first),
        "last": rfc3339(group.last),
        "receipt": group.receipt,
        "link": link_to(link, group.id),
        "seen": {"at": rfc3339(mark.seen_at), "by": mark.seen_by} if mark.seen_at >= group.last else None,
        "muted": {"until": rfc3339(mark.muted_until), "by": mark.muted_by, "reason": mark.reason} if muted else None,
    }


def link_to(link: str, group: str) -> str:
    """Return where people read a group, empty where nobody said where they read."""
    return f"{link}/alerts#alert-{group}" if link else ""


# What people say of a group, each on record. Who sees or mutes one has looked at it.


def mute(group: str, seconds: int, reason: str, *, by: str, now: int) -> Unit:
    """The unit after which nobody is told of a group for a while.

    Recording it raises `InvalidCall`: 404 where there is no such group, 409 where it is critical.
    """
    if not MIN_MUTE_S <= seconds <= MAX_MUTE_S:
        raise InvalidCall(f"a mute lasts {MIN_MUTE_S} seconds to {MAX_MUTE_S // 86_400} days")
    if not 1 <= len(reason) <= MAX_REASON_CHARS:
        raise InvalidCall(f"a mute has a reason of 1 to {MAX_REASON_CHARS} characters")

    def step(found: AlertGroup, before: AlertMark) -> AlertMark:
        if found.severity is Risk.CRITICAL:
            raise InvalidCall(
                "what is critical is always told", code="conflict", hint="mark it as seen, and act on it", status=409
            )
        return structs.replace(
            before, muted_until=now + seconds * MICROS, muted_by=by, reason=reason, seen_at=now, seen_by=by
        )

    until = rfc3339(now + seconds * MICROS)
    return _marked(group, "alert_mute", {"reason": reason, "until": until}, step, by=by, now=now)


def unmute(group: str, *, by: str, now: int) -> Unit:
    """The unit that takes a mute back; recording it raises `InvalidCall` (404) where nothing is muted."""

    def step(found: AlertGroup, before: AlertMark) -> AlertMark:
        if not before.mutes(found.severity, now):
            raise InvalidCall("this alert is not muted", code="not_found", status=404)
        return structs.replace(before, muted_until=0, muted_by="", reason="")

    return _marked(group, "alert_unmute", {}, step, by=by, now=now)


def see(group: str, *, by: str, now: int) -> Unit:
    """The unit that says that somebody has looked at a group, so that nobody else is told for want of an answer."""

    def step(_: AlertGroup, before: AlertMark) -> AlertMark:
        return structs.replace(before, seen_at=now, seen_by=by)

    return _marked(group, "alert_seen", {}, step, by=by, now=now)


def _marked(group: str, action: str, said: Mapping[str, str], step: Step, *, by: str, now: int) -> Unit:
    def apply(transaction: Transaction) -> Sequence[Draft]:
        found = read_groups(transaction, now)[0].get(group)
        if found is None:
            raise InvalidCall("there is no such alert", code="not_found", status=404)
        kept = {one.key: one for one in _stored_marks(transaction)}
        stored = kept.get(group)
        mark = step(found, UNMARKED if stored is None else decode(stored.body, AlertMark))
        for one in kept.values():
            if one.key != group and _is_over(decode(one.body, AlertMark), now):
                transaction.delete_document(MARKS, one.key)
        version = 1 if stored is None else stored.version + 1
        body = orjson.dumps(to_builtins(mark))
        transaction.put_document(Document(collection=MARKS, key=group, version=version, body=body))
        members: dict[str, Any] = {"kind": "config", "receipt_id": new_id(), "principal": by, "action": action}
        members |= {"agent": found.agent} if found.agent else {}
        salt, payload = os.urandom(SALT_BYTES), canonical({"alert": group, "cause": found.cause, **said})
        members["payload_commitment"] = payload_commitment(salt, payload)
        return [Draft(members={**members, "parent": found.receipt}, payload=payload, salt=salt)]

    return Unit(apply=apply)


def _is_over(mark: AlertMark, now: int) -> bool:
    """Whether nothing that is kept of a group says anything any more."""
    return mark.muted_until <= now and mark.seen_at <= now - WINDOW_US
