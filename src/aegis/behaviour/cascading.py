"""What follows by itself where something is contained: the sessions behind it are found, marked, and held or suspended.

(1) a containment that a process sees for the first time is walked beside the calls: what was written before it, within
    the time that the policy looks back, and what that reached
(2) what the walk found is written with the newest receipts walked inside of the transaction, so that nothing is missed
(3) from then on every call that is recorded is followed in the transaction that records it: a session that is reached
    by its call is contained before its next one, in every gateway on the store
(4) the end of the containment ends what followed from it

One cascade is bounded: in receipts that are walked, in sessions that are reached, in objects that are remembered.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

import orjson
from msgspec import structs

from aegis.behaviour.cascade_store import (
    CASCADES,
    FLOWS,
    REACHED,
    Cascade,
    StoredTaint,
    cascade_of,
    documents_of,
    end_behind,
    end_orphans,
    put_cascade,
    read_cascades,
)
from aegis.behaviour.cascades import (
    MAX_FOUND,
    MAX_WALKED,
    Downstream,
    FlowSource,
    FlowStep,
    WalkedTaint,
    call_step,
    follow,
    names_in,
    opening_step,
    steps_of,
    was_let_through,
)
from aegis.behaviour.containing import CASCADE
from aegis.behaviour.containment import GATE, GUARD, contain, draft_of
from aegis.behaviour.digest import first_at
from aegis.context.heads import COLLECTION as MEMORIES
from aegis.context.heads import fresh_head, put_head, read_head, seal, unseal
from aegis.context.sessions import key_of_session
from aegis.core.behaviour import CascadeRules
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Reader, Search, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import rfc3339
from aegis.errors import AegisError, StoreConflict
from aegis.gate.control import (
    Contained,
    Containing,
    Control,
    ControlState,
    read_control,
)
from aegis.gate.parts import Parts
from aegis.log.writer import Unit

MAX_CASCADES: Final = 32  # that are followed at once: bounds what a call is held against while they last
MAX_CAUGHT_UP: Final = 512  # receipts that are walked inside of a transaction
NEWEST: Final = 1_000  # receipts of a session that are asked for its first one
AT_ONCE: Final = 50  # sessions that are contained, and documents that are removed tenfold, in one transaction
_log = logging.getLogger("aegis.behaviour.cascades")


class Cascades:
    """Begins, follows and ends cascades in one process; several processes on one store see the same ones."""

    def __init__(self, parts: Parts, control: Control):
        self._parts = parts
        self._control = control
        self._epoch = -1
        self._followed: tuple[tuple[Cascade, bytes], ...] = ()
        self._ends = 0
        self._stopped: frozenset[str] | None = None
        self._lock = threading.Lock()
        self._waits = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = False

    def attend(self, state: ControlState) -> None:
        """Notice what was contained or released since; costs a comparison where nothing was."""
        if state.epoch == self._epoch and (not self._ends or state.clock() < self._ends):
            return
        if self._stopped is None:
            self._stopped = state.stopped  # who was stopped before this process began is no news
        if state.contained or state.stopped - self._stopped or self._followed:
            with self._parts.store.reader() as reader:
                found = read_cascades(reader)
            standing = [one for one in found if one.holds_in(state)]
            self._followed = tuple((one, unseal(self._parts, one.secret)) for one in standing if not one.idle)
            known = {one.id for one in found}
            if len(standing) < len(found) or any(one.id not in known for one in self._causes(state)):
                self.wake()
        self._ends = min((one.until for one, _ in self._followed if one.until), default=0)
        self._epoch = state.epoch

    def look(self, transaction: Transaction, draft: Draft, rules: CascadeRules) -> list[Draft]:
        """Follow one draft that is being recorded (3), and give what follows from it."""
        members = draft.members
        kind = members["kind"]
        if kind == "revocation":
            if members.get("action") in ("restore", "release"):
                end_orphans(transaction, self._parts.clock)
            return []
        if rules.does == "off" or (kind == "decision" and not self._followed):
            return []  # a decision is recorded under the epoch for which `attend` was asked
        followed = self._in_force(transaction)
        if not followed:
            return []
        if kind == "session":
            step = opening_step(
                members["receipt_id"], members.get("agent", ""), members["principal"], members["session"],
                orjson.loads(draft.payload or b"{}"),
            )  # fmt: skip
        elif was_let_through(members):
            step = call_step(members, lambda: names_in(orjson.loads(draft.payload or b"{}")))
        else:
            return []
        found: list[Draft] = []
        for cascade, key in followed:
            taint = StoredTaint(self._parts, transaction, cascade, key)
            reached = follow(step, cascade.source, taint)
            if reached is not None:
                now = max(self._parts.clock(), transaction.head().time)
                found += self._reach(transaction, taint, (reached,), rules, now)
                found.append(_alarm(taint.cascade, 1))
        return found

    def wake(self) -> None:
        """Let the thread look what is to be begun or ended."""
        with self._lock:
            if self._closing:
                return
            self._waits.set()
            if self._thread is None or not self._thread.is_alive():  # first use, or this is a forked child
                self._thread = threading.Thread(target=self._run, name="aegis-cascade", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread; what it was at is begun again by whoever sees the containment next."""
        with self._lock:
            self._closing = True
            self._waits.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def settle(self) -> None:
        """Begin and end what is to be begun and ended, in this thread."""
        state = self._control.current()
        with self._parts.store.reader() as reader:
            found = read_cascades(reader)
        for one in found:
            if not one.holds_in(state):
                self._end(one)
        standing = [one for one in found if one.holds_in(state)]
        known, count = {one.id for one in standing}, sum(not one.idle for one in standing)
        rules = self._parts.policy.current.behaviour.cascade
        for cause in self._causes(state):
            if rules.does != "off" and cause.id not in known and count < MAX_CASCADES and not self._closing:
                count += self._begin(cause, rules)
        self._stopped = state.stopped

    def _run(self) -> None:
        while not self._closing:
            self._waits.wait()
            self._waits.clear()
            try:
                if not self._closing:
                    self.settle()
            except AegisError as error:  # the store is busy or gone: the next call that sees the epoch tries again
                _log.warning("a cascade could not be followed: %s", error)
                self._epoch = -1

    def _causes(self, state: ControlState) -> list[Contained]:
        """What is contained of itself, newest first: not what is contained for being downstream of something."""
        found = [
            one
            for one in state.contained.values()
            if one.of in ("agent", "session", "mission") and not one.behind and one.holds_at(state.clock())
        ]
        for name in state.stopped - (self._stopped or frozenset()):
            found.append(Contained(of="agent", subject=name, does="revoke", since=self._parts.clock(), agent=name))
        return sorted(found, key=lambda one: -one.since)

    def _in_force(self, transaction: Transaction) -> Sequence[tuple[Cascade, bytes]]:
        if self._epoch == transaction.head().epoch:
            return self._followed
        found = read_cascades(transaction)
        if not found:
            return ()
        state = read_control(transaction, self._parts.clock)
        return [(one, unseal(self._parts, one.secret)) for one in found if one.holds_in(state) and not one.idle]

    def _begin(self, cause: Contained, rules: CascadeRules) -> bool:
        """Walk the log (1), and write what was found (2); whether there is anything to follow."""
        parts, source = self._parts, FlowSource(cause.of, cause.subject)
        taint = WalkedTaint()
        with parts.store.reader() as reader:
            size = reader.head().size
            since = _first_of(reader, cause, first_at(reader, cause.since - rules.back, size))
            start = max(since, size - MAX_WALKED)
            taint.walk(self._unless_closing(steps_of(parts, reader, start, size)), source)
        while not self._closing:
            with parts.store.reader() as reader:
                head = reader.head().size
                if head - size > MAX_CAUGHT_UP // 2:
                    taint.walk(self._unless_closing(steps_of(parts, reader, size, head)), source)
                    size = head
                    continue
            break
        if self._closing:  # half of a walk is not written down: whoever sees the containment next walks it
            return False
        key = os.urandom(32)
        cascade = Cascade(
            id=cause.id,
            of=cause.of,
            subject=cause.subject,
            secret=seal(parts, key),
            since=cause.since,
            until=cause.until,
            cause=cause.cause,
            receipt=cause.receipt,
            agent=cause.agent,
            complete=start == since and len(taint.reached) < MAX_FOUND,
        )
        reached: list[Downstream] = []

        def write(transaction: Transaction) -> Sequence[Draft]:
            if transaction.document(CASCADES, cause.id) is not None:
                raise StoreConflict("another process follows it already")
            head = transaction.head()
            if head.size - size > MAX_CAUGHT_UP:
                raise StoreConflict("more was recorded than is walked here")
            taint.walk(steps_of(parts, transaction, size, head.size), source)
            idle = cause.does != "hold" and not taint.reached and not any(taint.flows.values())
            put_cascade(transaction, structs.replace(cascade, idle=idle), 1)
            stored = StoredTaint(parts, transaction, cascade, key)
            for session in sorted(taint.sources):
                stored.note_source(session)
            for kind in ("object", "mission", "agent"):
                for name, session in taint.flows[kind].items():
                    stored.note(kind, name, session)
            reached.extend(taint.reached.values())
            if not idle:  # calls that are under way are decided again for it
                transaction.bump_epoch()
            now = max(parts.clock(), head.time)
            drafts = self._reach(transaction, stored, reached[:AT_ONCE], rules, now)
            return [*drafts, _alarm(stored.cascade, len(reached))] if reached else drafts

        try:
            parts.ledger.append(Unit(apply=write))
        except StoreConflict:
            self._waits.set()  # it is looked at once more
            return True
        for at in range(AT_ONCE, len(reached), AT_ONCE):
            parts.ledger.append(Unit(apply=self._more(cause.id, key, reached[at : at + AT_ONCE], rules)))
        return cause.does == "hold" or any(taint.flows.values())

    def _unless_closing(self, steps: Iterable[FlowStep]) -> Iterator[FlowStep]:
        """Give steps until the gateway closes, which waits for one of them and not for the log."""
        return takewhile(lambda _: not self._closing, steps)

    def _more(self, cascade: str, key: bytes, reached: Sequence[Downstream], rules: CascadeRules) -> Any:
        def write(transaction: Transaction) -> Sequence[Draft]:
            found = cascade_of(transaction, cascade)
            if found is None:  # released meanwhile
                return ()
            taint = StoredTaint(self._parts, transaction, found, key)
            now = max(self._parts.clock(), transaction.head().time)
            return self._reach(transaction, taint, reached, rules, now)

        return write

    def _reach(
        self, transaction: Transaction, taint: StoredTaint, reached: Sequence[Downstream], rules: CascadeRules, now: int
    ) -> list[Draft]:
        """Mark the sessions that were reached, contain them as the policy says, and give the receipts of it."""
        drafts: list[Draft] = []
        for found in reached:
            if taint.is_reached(found.session) or not taint.reach(found, rules.does, now):
                continue
            cascade = taint.cascade
            principal, _, session = found.session.partition("\n")
            _mark(self._parts, transaction, principal, session)
            more: dict[str, Any] = {"principal": GATE, "agent": found.agent, "parent": found.receipt}
            if session:
                more["session"] = session
            told = {"cause": f"downstream of {cascade.cause or cascade.id}", "of": "session", "behind": cascade.id}
            if rules.does == "mark":
                outcome, reason = Outcome.ALLOW, Reason.NONE
            else:
                # What has no session cannot be refused apart: it is held.
                does: Containing = "suspend" if rules.does == "suspend" and session else "hold"
                one = Contained(
                    of="session", subject=found.session, does=does, since=now, until=cascade.until,
                    cause=told["cause"], by=GATE, receipt=found.receipt, agent=found.agent, session=session,
                    behind=cascade.id,
                )  # fmt: skip
                contain(transaction, one, sweeps=not drafts)
                outcome = Outcome.REQUIRE_APPROVAL if does == "hold" else Outcome.BLOCK
                reason = Reason.ANOMALY if does == "hold" else Reason.REVOKED
                told["id"] = one.id
                if one.until:
                    more["expires"] = rfc3339(one.until)
            guards = [{"guard": GUARD, "outcome": outcome.word, "rules": [CASCADE]}]
            drafts.append(
                draft_of(
                    {"kind": "revocation", "action": rules.does, "reason": reason.value, "guards": guards, **more}, told
                )
            )
        return drafts

    def _end(self, cascade: Cascade) -> None:
        """Remove what is kept of a cascade whose containment ended (4)."""

        def write(transaction: Transaction) -> Sequence[Draft]:
            end_behind(transaction, cascade.id)
            left = 10 * AT_ONCE
            for collection in (FLOWS, REACHED):
                for one in list(documents_of(transaction, collection, f"{cascade.id}#"))[:left]:
                    transaction.delete_document(collection, one.key)
                    left -= 1
            if left:
                transaction.delete_document(CASCADES, cascade.id)
                transaction.bump_epoch()
            return ()

        while not self._closing:
            self._parts.ledger.append(Unit(apply=write))
            with self._parts.store.reader() as reader:
                if reader.document(CASCADES, cascade.id) is None:
                    return


def _first_of(reader: Reader, cause: Contained, since: int) -> int:
    """Where to begin: a session that did little is walked from its first receipt."""
    principal, _, session = cause.subject.partition("\n")
    if cause.of != "session" or not session:
        return since
    found = reader.search(Search(principal=principal, session=session, limit=NEWEST))
    return since if len(found) == NEWEST else max(since, min((one.index for one in found), default=since))


def _alarm(cascade: Cascade, count: int) -> Draft:
    members: dict[str, Any] = {
        "kind": "alarm",
        "action": CASCADE,
        "principal": GATE,
        "reason": Reason.ANOMALY.value,
        "guards": [{"guard": GUARD, "outcome": Outcome.REQUIRE_APPROVAL.word, "rules": [CASCADE]}],
    }
    if cascade.receipt:
        members["parent"] = cascade.receipt
    if cascade.agent:
        members["agent"] = cascade.agent
    return draft_of(members, {"cause": cascade.cause, "behind": cascade.id, "reached": str(count)})


def _mark(parts: Parts, transaction: Transaction, principal: str, session: str) -> None:
    """Let a session count as one that read what nobody trusts; that stays, as what was read does."""
    if not session:
        return
    key = key_of_session(principal, session)
    document = transaction.document(MEMORIES, key)
    head = fresh_head(parts) if document is None else read_head(document)
    if not head.untrusted:
        head = structs.replace(head, untrusted=True, reads=head.reads + 1)
        put_head(transaction, key, head, 0 if document is None else document.version)
