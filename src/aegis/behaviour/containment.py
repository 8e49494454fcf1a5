"""What is contained: what a condition that held makes of its subject, how that is in force, and its end by a person."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec import structs, to_builtins

from aegis.approvals.queue import find
from aegis.behaviour.containing import Caller, EventCounts
from aegis.context.sessions import key_of_session
from aegis.core.behaviour import ContainedBy, ContainmentRule
from aegis.core.canonical import SALT_BYTES, canonical, payload_commitment
from aegis.core.json import decode
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import rfc3339
from aegis.detect.fold import name_skeleton
from aegis.errors import InvalidCall
from aegis.gate.control import COLLECTION as SWITCHES
from aegis.gate.control import (
    CONTAINED,
    MAX_REASON_CHARS,
    Contained,
    Containing,
    contained_key,
    contained_of,
    list_contained,
    list_stopped,
    set_agent,
)
from aegis.gate.events import new_id
from aegis.log.writer import Unit
from aegis.missions import registry

TALLIES: Final = "containment_tallies"
GATE: Final = "gate"
GUARD: Final = "containment"
_BECAUSE: Final = "containment: "
_STRENGTH: Final[Mapping[Containing, int]] = {"hold": 0, "suspend": 1, "revoke": 2}


def findings_in(payload: bytes) -> Sequence[Mapping[str, Any]]:
    """The findings that the payload of a receipt holds."""
    if b'"findings":' not in payload:
        return ()
    value = orjson.loads(payload)
    found: list[dict[str, Any]] = value.get("findings", []) if isinstance(value, dict) else []
    return found


def caller_of(reader: Reader, members: Mapping[str, Any]) -> Caller:
    """Whose call a receipt is about: an answer names the person who gave it, and no alarm names a mission."""
    principal: str = members["principal"]
    if members["kind"] == "approval":
        approval = find(reader, members["approval_id"])
        principal = principal if approval is None else approval.principal
    lineage: Sequence[str] = members.get("lineage", ())
    if not lineage and members.get("session"):
        bound = registry.find_session(reader, key_of_session(principal, members["session"]))
        mission = None if bound is None else registry.find(reader, bound[0].mission_id)
        lineage = () if mission is None else mission.lineage
    return Caller(principal, lineage[0] if lineage else "")


def contained_by(
    rule: ContainmentRule, subject: str, now: int, *, receipt: str, agent: str = "", session: str = ""
) -> Contained | None:
    """What a condition that held makes of its subject; `None` where it only says so."""
    if rule.does == "alert":
        return None
    return Contained(
        of=rule.of,
        subject=name_skeleton(subject) if rule.of == "agent" else subject,
        does=rule.does,
        until=now + rule.lasts if rule.lasts else 0,
        since=now,
        cause=rule.words,
        by=GATE,
        receipt=receipt,
        agent=agent,
        session=session if rule.of == "session" else "",
    )


def contain(transaction: Transaction, one: Contained, *, sweeps: bool = True) -> None:
    """Put `one` in force for every call that is decided from now on; what is stricter or lasts longer stays.

    What is contained of itself is so still where it is reached by something else. `sweeps` removes what ended.
    """
    if one.of == "agent" and one.does == "revoke":
        _revoke(transaction, one)
    else:
        stored = transaction.document(CONTAINED, one.id)
        if stored is not None:
            before = contained_of(stored)
            if before.holds_at(one.since):
                one = structs.replace(
                    one,
                    does=max(before.does, one.does, key=lambda does: _STRENGTH[does]),
                    until=0 if not before.until or not one.until else max(before.until, one.until),
                    behind=one.behind if before.behind else "",
                )
        version = 1 if stored is None else stored.version + 1
        if sweeps:
            _forget_ended(transaction, one)
        transaction.put_document(
            Document(collection=CONTAINED, key=one.id, version=version, body=orjson.dumps(to_builtins(one)))
        )
    transaction.bump_epoch()


def _revoke(transaction: Transaction, one: Contained) -> None:
    """Stop an agent as a person would: whoever restores it finds it where it always was."""
    stored = transaction.document(SWITCHES, one.agent)
    body: dict[str, Any] = {"agent": one.agent, "state": "revoked", "reason": f"{_BECAUSE}{one.cause}", "by": GATE}
    body |= {"since": one.since, "receipt": one.receipt}
    version = 1 if stored is None else stored.version + 1
    transaction.put_document(
        Document(collection=SWITCHES, key=one.agent, version=version, state="revoked", body=orjson.dumps(body))
    )


def _forget_ended(transaction: Transaction, new: Contained) -> None:
    """Remove what ended by itself: every process reads what is kept whenever the control epoch moves."""
    after = ""
    while page := transaction.documents(CONTAINED, after=after):
        after = page[-1].key
        for stored in page:
            if stored.key != new.id and not contained_of(stored).holds_at(new.since):
                transaction.delete_document(CONTAINED, stored.key)


def drafts_of(
    rule: ContainmentRule, one: Contained | None, receipt: str, policy_digest: str, about: Mapping[str, Any]
) -> list[Draft]:
    """The receipts of a condition that held: that it did, and what is contained by it."""
    said: dict[str, Any] = {
        "principal": GATE,
        "parent": receipt,
        "reason": Reason.REVOKED.value if rule.does in ("suspend", "revoke") else Reason.ANOMALY.value,
        "guards": [{"guard": GUARD, "outcome": _outcome(rule).word, "rules": [rule.name]}],
        "policy_digest": policy_digest,
    }
    for name in ("agent", "session", "tool", "server", "mission_id"):
        if about.get(name):
            said[name] = about[name]
    told = {"cause": rule.words, "of": rule.of, "does": rule.does}
    drafts = [draft_of({"kind": "alarm", "action": "containment", **said}, told)]
    if one is not None:
        more = {"expires": rfc3339(one.until)} if one.until else {}
        drafts.append(draft_of({"kind": "revocation", "action": rule.does, **said, **more}, {**told, "id": one.id}))
    return drafts


def _outcome(rule: ContainmentRule) -> Outcome:
    if rule.does == "alert":
        return Outcome.ALLOW
    return Outcome.REQUIRE_APPROVAL if rule.does == "hold" else Outcome.BLOCK


def draft_of(members: dict[str, Any], told: Mapping[str, str]) -> Draft:
    """A receipt of the gate, with the words beside it."""
    salt, payload = os.urandom(SALT_BYTES), canonical(dict(told))
    members = {**members, "receipt_id": new_id(), "payload_commitment": payload_commitment(salt, payload)}
    return Draft(members=members, payload=payload, salt=salt)


# What a person does: everything stopped at once, and the end of what is contained.


def kill(reason: str, *, principal: str, now: int) -> Unit:
    """The unit that stops every agent: calls, sessions, delegations and challenges, from the next decision on."""
    reason = _checked(reason)

    def apply(transaction: Transaction) -> Sequence[Draft]:
        one = Contained(of="everything", subject="", does="revoke", since=now, cause=reason, by=principal)
        contain(transaction, one)
        return [_by_person("kill", principal, reason, one)]

    return Unit(apply=apply)


def release(key: str, reason: str, *, principal: str, released: Callable[[Contained], None] | None = None) -> Unit:
    """The unit that ends what is contained under `key`, with the reason; recording it raises `InvalidCall` (404)."""
    reason = _checked(reason)

    def apply(transaction: Transaction) -> Sequence[Draft]:
        stored = transaction.document(CONTAINED, key)
        stopped = next((one for one in _stopped_by_gate(transaction) if one.id == key), None)
        if stored is None and stopped is not None:
            restored = set_agent(stopped.agent, state="active", reason=reason, principal=principal)
            return () if restored.apply is None else restored.apply(transaction)
        if stored is None:
            message = "agents are not stopped" if key == "everything" else "nothing is contained under this id"
            raise InvalidCall(message, code="not_found", status=404)
        one = contained_of(stored)
        transaction.delete_document(CONTAINED, key)
        transaction.bump_epoch()
        if released is not None:
            released(one)
        return [_by_person("release", principal, reason, one)]

    return Unit(apply=apply)


def contain_sessions(
    subjects: Sequence[str], does: Containing, reason: str, *, principal: str, until: int, now: int, behind: str = ""
) -> Unit:
    """The unit that contains sessions together, each on record; what is stricter or lasts longer stays.

    Where they are `behind` something contained, they are released with it.
    """
    reason = _checked(reason)

    def apply(transaction: Transaction) -> Sequence[Draft]:
        drafts: list[Draft] = []
        for subject in subjects:
            session = subject.partition("\n")[2]
            one = Contained(
                of="session", subject=subject, does=does, since=now, until=until, cause=reason, by=principal,
                session=session, behind=behind,
            )  # fmt: skip
            contain(transaction, one, sweeps=not drafts)
            drafts.append(_by_person(does, principal, reason, one))
        return drafts

    return Unit(apply=apply)


def _by_person(action: str, principal: str, reason: str, one: Contained) -> Draft:
    members: dict[str, Any] = {
        "kind": "revocation",
        "principal": principal,
        "action": action,
        "reason": Reason.REVOKED.value if action in ("kill", "suspend") else Reason.NONE.value,
    }
    for name, value in (("agent", one.agent), ("session", one.session), ("parent", one.receipt)):
        if value:
            members[name] = value
    return draft_of(members, {"reason": reason, "of": one.of, "id": one.id})


def _checked(reason: str) -> str:
    if len(reason) > MAX_REASON_CHARS:
        raise InvalidCall(f"`reason` must have at most {MAX_REASON_CHARS} characters")
    return reason


def contained_now(reader: Reader, now: int) -> list[Contained]:
    """What is contained at `now`, newest first; agents that a condition stopped for good are among it."""
    found = [one for one in list_contained(reader) if one.holds_at(now)]
    return sorted([*found, *_stopped_by_gate(reader)], key=lambda one: -one.since)


def _stopped_by_gate(reader: Reader) -> Iterator[Contained]:
    """The agents that a condition stopped, and that nobody restored since."""
    for stored in list_stopped(reader):
        body = orjson.loads(stored.body)
        if body["by"] == GATE:
            yield Contained(
                of="agent", subject=name_skeleton(stored.key), does="revoke", since=body.get("since", 0), by=GATE,
                cause=body["reason"].removeprefix(_BECAUSE), receipt=body.get("receipt", ""), agent=stored.key,
            )  # fmt: skip


def counts_of(reader: Reader, of: ContainedBy, subject: str) -> EventCounts:
    """What is counted of one subject at this moment."""
    stored = reader.document(TALLIES, contained_key(of, subject))
    return EventCounts() if stored is None else decode(stored.body, EventCounts)
