"""What is looked at in everything that is recorded, inside of the transaction that records it.

(1) receipts that count for no condition of containment cost nothing
(2) the tally of each subject is read, counted on and written; many gateways on one store count as one
(3) where a condition holds, its subject is contained, the control epoch moves, and both are on record with their cause
(4) every gateway decides its next call under the new epoch, or its record is refused and the call is decided again

Tallies are kept apart by subject. Whoever makes a new one looks at its neighbours and removes those in which nothing
counts any more, so that there are never many more tallies than events inside the longest condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson
from msgspec import convert, to_builtins

from aegis.approvals.queue import find
from aegis.behaviour.budgets import answer
from aegis.behaviour.canaries import GUARD as CANARIES
from aegis.behaviour.canaries import Canaries, WatchedCanary
from aegis.behaviour.cascading import Cascades
from aegis.behaviour.containing import CANARY_RULE, EventCounts, counted, may_count, note
from aegis.behaviour.containment import TALLIES, caller_of, contain, contained_by, drafts_of, findings_in
from aegis.behaviour.usual import UsualCalls
from aegis.core.behaviour import BudgetRule, ContainedBy, ContainmentRule
from aegis.core.outcome import Outcome
from aegis.core.ports import Document, Transaction
from aegis.core.receipt import Draft, Recorded
from aegis.gate.control import contained_key
from aegis.gate.events import Event, notify
from aegis.gate.parts import Parts

NEIGHBOURS: Final = 2  # tallies that are looked at for each new one: what is over goes as quickly as new ones come
_OFS: Final[tuple[ContainedBy, ...]] = ("session", "agent", "mission", "tool")
_FOLLOWED: Final = frozenset({"decision", "session", "revocation"})


class ContainmentWatch:
    """Counts what is recorded, contains, and follows what came of it; `log.writer.Watch` over one deployment."""

    def __init__(self, parts: Parts, canaries: Canaries, usual: UsualCalls, cascades: Cascades):
        self._cascades = cascades
        self._canaries = canaries
        self._usual = usual
        self._policy = parts.policy
        self._clock = parts.clock
        self._listeners = parts.listeners

    def look(self, transaction: Transaction, drafts: Sequence[Draft], epoch: int) -> Sequence[Draft]:
        """What follows from what one unit records under `epoch`."""
        policy = self._policy.current
        rules, watched = policy.behaviour.containment, self._canaries.watched_in(transaction, epoch)
        found: list[Draft] = []
        for draft in drafts:
            kind = draft.members["kind"]
            if kind == "decision":
                self._usual.save(transaction, draft.members["agent"])
            elif kind == "result":
                _look_at_result(watched, draft)
            elif kind == "approval" and policy.behaviour.budgets and draft.members.get("approvers"):
                self._answered(transaction, draft, policy.behaviour.budgets)
            if kind in _FOLLOWED:
                found += self._cascades.look(transaction, draft, policy.behaviour.cascade)
            if rules and may_count(draft.members, watched=watched is not None):  # (1)
                found += self._counted(transaction, draft, rules, policy.digest)
        return found

    def recorded(self, draft: Draft, recorded: Recorded) -> None:
        """Tell those who listen what was contained, and let what it reached be looked for."""
        if draft.members["kind"] == "revocation":
            self._cascades.wake()
        notify(self._listeners, Event(kind=draft.members["kind"], members=draft.members, recorded=recorded))

    def _answered(self, transaction: Transaction, draft: Draft, budgets: Sequence[BudgetRule]) -> None:
        """Let the budgets know what people said; what evidence or an earlier answer released is no answer to them."""
        said, approval = draft.members.get("action"), find(transaction, draft.members["approval_id"])
        if said in ("approved", "denied") and approval is not None:
            answer(transaction, budgets, approval, self._clock(), is_yes=said == "approved")

    def _counted(
        self, transaction: Transaction, draft: Draft, rules: Sequence[ContainmentRule], policy_digest: str
    ) -> list[Draft]:
        members = draft.members
        findings = () if draft.payload is None else findings_in(draft.payload)
        noted = note(members, findings, caller_of(transaction, members))
        if noted is None:
            return []
        now = max(self._clock(), transaction.head().time)
        drafts: list[Draft] = []
        for of in _OFS:
            subject = noted.subjects.get(of)
            if subject is None or not any(rule.of == of for rule in rules):
                continue
            # (2)
            key = contained_key(of, subject)
            stored = transaction.document(TALLIES, key)
            tally = EventCounts() if stored is None else convert(orjson.loads(stored.body), EventCounts)
            rule = counted(tally, rules, noted, of, now)
            if stored is None:
                _sweep(transaction, key, rules, now)
            transaction.put_document(
                Document(
                    collection=TALLIES,
                    key=key,
                    version=1 if stored is None else stored.version + 1,
                    body=orjson.dumps(to_builtins(tally)),
                )
            )
            # (3)
            if rule is not None:
                one = contained_by(rule, subject, now, receipt=noted.receipt, agent=noted.agent, session=noted.session)
                drafts += drafts_of(rule, one, noted.receipt, policy_digest, members)
                if one is not None:
                    contain(transaction, one)
        return drafts


def _look_at_result(watched: WatchedCanary | None, draft: Draft) -> None:
    """Note in the receipt of a result that it holds a canary: its agent read where nobody has to."""
    if watched is not None and draft.payload is not None and watched.is_in(draft.payload):
        noted = {"guard": CANARIES, "outcome": Outcome.ALLOW.word, "rules": [CANARY_RULE]}
        draft.members["guards"] = [*draft.members["guards"], noted]


def _sweep(transaction: Transaction, key: str, rules: Sequence[ContainmentRule], now: int) -> None:
    """Remove what is over among the tallies behind `key`; keys are digests, so that every place comes up."""
    for stored in transaction.documents(TALLIES, after=key, limit=NEIGHBOURS):
        if convert(orjson.loads(stored.body), EventCounts).is_over(rules, now):
            transaction.delete_document(TALLIES, stored.key)
