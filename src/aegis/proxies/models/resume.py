"""Held calls that a later request asks about: given to the client once a person agreed, refused once one did not."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from aegis.adapters._enforce import Attempt, Enforced, Enforcer
from aegis.adapters.context import Session
from aegis.core.outcome import Outcome
from aegis.dialects.model import Removal
from aegis.proxies.models.book import Book, Scope
from aegis.proxies.models.records import Kind, Record, State, Taken


class Found:
    """The recall of one request, which notes what it found."""

    def __init__(self, book: Book, scope: Scope):
        self._book = book
        self._scope = scope
        self._removals: dict[str, Removal] = {}
        self.records: list[Record] = []

    def by_call(self, key: str) -> Removal | None:
        return self._look("call", key)

    def by_ref(self, ref: str) -> Removal | None:
        return self._look("ref", ref)

    def by_anchor(self, anchor: str) -> Removal | None:
        return self._look("anchor", anchor)

    def _look(self, kind: Kind, key: str) -> Removal | None:
        record = self._book.record(self._scope, kind, key)
        if record is None:
            return None
        if record.ref not in self._removals:
            self.records.append(record)
            # One object for one record: what was put back is known again by its identity.
            self._removals[record.ref] = record.removal
        removal = self._removals[record.ref]
        return removal if removal.refused else None


class Resumptions:
    """Moves held calls on; one at a time for each record, so that a call is given out once."""

    def __init__(self, book: Book):
        self._book = book
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def move(
        self, record: Record, scope: Scope, enforcer: Enforcer, session: Session | None
    ) -> tuple[Record, list[tuple[Taken, Enforced]]]:
        """The record as it is now, and the calls that are to be given out now, in order."""
        lock = self._locks.setdefault(record.ref, asyncio.Lock())
        async with lock:
            self._book.forget(scope, record)
            record = self._book.record(scope, "ref", record.ref) or record
            held = record.held
            attempts = [
                Attempt(
                    tool=one.tool,
                    server=one.server,
                    arguments=self._book.arguments(one.decision_id),
                    call_id=one.gate_id,
                )
                for one in held
            ]
            enforced = await enforcer.arun(enforcer.enforce(attempts, session))
            changes: dict[str, tuple[State, str]] = {}
            for one, now in zip(held, enforced, strict=True):
                if now.allowed:
                    changes[one.gate_id] = ("released", "")
                elif now.decision.outcome is not Outcome.REQUIRE_APPROVAL:
                    changes[one.gate_id] = ("refused", now.refusal)
            if changes:
                record = record.moved(changes)
                await self._book.write(self._book.remember(scope, record))
            return record, [(one, now) for one, now in zip(held, enforced, strict=True) if now.allowed]
