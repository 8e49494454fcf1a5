"""The one way into the log: group commit over a store.

Callers bring units; whoever holds the commit lock writes every unit that waits, in one durable
transaction. A unit is recorded whole or not at all, and one that loses a compare-and-set does not
disturb the others of its group.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from aegis.core.ports import Clock, Head, Store, Transaction
from aegis.core.receipt import Draft, Recorded
from aegis.errors import InvalidCall, StoreConflict, StoreInDoubt, StoreUnavailable
from aegis.log.append import Seal, SignerFor, build
from aegis.log.merkle import Frontier

MAX_GROUP: Final = 64  # bounds how long the last caller of a group waits for the first
MAX_WAITING: Final = 10_000  # bounds what a slow disk can make us hold in memory
LEADER_WAIT_S: Final = 5.0  # how long a caller waits for its turn before the store counts as gone

Apply = Callable[[Transaction], Sequence[Draft]]


class ControlMoved(StoreConflict):
    """Keys, agents or configuration changed since the unit was made: decide again."""


class CallMoved(StoreConflict):
    """The same call was recorded meanwhile: answer with its state."""


class CallKey(Struct, frozen=True, kw_only=True):
    """The idempotency key of a call, and the index of its newest decision that the caller knows."""

    principal: str
    session: str
    call_id: str
    known: int | None = None


class Unit(Struct, frozen=True, kw_only=True):
    """What is recorded together.

    `apply` runs inside the transaction and may give further drafts; it raises before its first
    write or not at all. `epoch` refuses the unit when control
    data moved since.
    """

    drafts: tuple[Draft, ...] = ()
    apply: Apply | None = None
    epoch: int | None = None
    call: CallKey | None = None


class Watch(Protocol):
    """Looks at everything that is recorded, inside the transaction that records it."""

    def look(self, transaction: Transaction, drafts: Sequence[Draft], epoch: int) -> Sequence[Draft]:
        """What one unit records under `epoch`, before it is committed; gives what is recorded behind it.

        It may write, and refuses nothing.
        """
        ...

    def recorded(self, draft: Draft, recorded: Recorded) -> None:
        """Hear that one draft of `look` is durable."""
        ...


Answer = tuple[Recorded, ...] | StoreConflict | InvalidCall


class _Ticket:
    __slots__ = ("answer", "failure", "unit")

    def __init__(self, unit: Unit):
        self.unit = unit
        self.answer: Answer | None = None
        self.failure: BaseException | None = None

    @property
    def done(self) -> bool:
        return self.answer is not None or self.failure is not None

    def result(self) -> tuple[Recorded, ...]:
        if self.failure is not None:
            raise self.failure
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            raise StoreUnavailable("the commit ended without an answer")
        return self.answer


class Ledger:
    """Appends units to the log of one store; safe for threads, and for several processes on one store."""

    def __init__(
        self,
        *,
        store: Store,
        log: str,
        signer_for: SignerFor,
        seal: Seal,
        clock: Clock,
        on_clock_behind: Callable[[int], None] | None = None,
        on_epoch: Callable[[], None] | None = None,
        on_others: Callable[[int, int], None] | None = None,
        on_own: Callable[[int, int], None] | None = None,
    ):
        self._store = store
        self._log = log
        self._signer_for = signer_for
        self._seal = seal
        self._clock = clock
        self._on_clock_behind = on_clock_behind
        self._on_epoch = on_epoch
        self._on_others = on_others
        self._on_own = on_own
        self.watch: Watch | None = None
        self._epoch = -1
        self._end: tuple[bytes, Frontier] = (b"", Frontier.empty())
        self._size = 0  # of the log after the last commit of this ledger
        self._start_afresh()
        _open_ledgers.add(self)

    def _start_afresh(self) -> None:
        self._waiting: deque[_Ticket] = deque()
        self._leader = threading.Lock()

    @property
    def depth(self) -> int:
        """How many units wait for a commit."""
        return len(self._waiting)

    def append(self, unit: Unit) -> tuple[Recorded, ...]:
        """Record `unit` durably and return where its drafts ended up.

        Raises `ControlMoved`, `CallMoved` or the `StoreConflict` of its `apply` when it lost, and
        `StoreUnavailable` when nothing can be recorded now.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise StoreUnavailable("too many calls wait for the log")
        if not self._waiting and self._leader.acquire(blocking=False):  # alone: nothing to share, nobody to tell
            try:
                (answer,) = self.commit((unit,))
            finally:
                self._leader.release()
            if isinstance(answer, Exception):
                raise answer
            return answer
        ticket = _Ticket(unit)
        self._waiting.append(ticket)
        while not ticket.done:
            if not self._leader.acquire(timeout=LEADER_WAIT_S):
                self._withdraw(ticket)
                raise StoreUnavailable("the log did not take the record in time")
            try:
                if not ticket.done:
                    self._lead()
            finally:
                self._leader.release()
        return ticket.result()

    @property
    def is_remote(self) -> bool:
        """Whether the store may keep whoever asks it waiting for long."""
        return self._store.is_remote

    def lead(self, units: Sequence[Unit]) -> list[Answer]:
        """`commit` in turn with those who `append`; raises `StoreUnavailable` where the turn does not come."""
        if not self._leader.acquire(timeout=LEADER_WAIT_S):
            raise StoreUnavailable("the log did not take the records in time")
        try:
            return self.commit(units)
        finally:
            self._leader.release()

    def commit(self, units: Sequence[Unit], *, wait_s: float | None = None) -> list[Answer]:
        """Record all `units` in one transaction; a lost unit answers with its conflict, and
        one whose `apply` refuses with that refusal. `wait_s` is how long to wait for other writers.

        Where the answer to the commit is lost, the log is read again: what is in it is answered as recorded.
        """
        spans: list[tuple[int, int] | StoreConflict | InvalidCall] = []
        drafts: list[Draft] = []
        watched: list[int] = []
        recorded: tuple[Recorded, ...] = ()
        try:
            with self._store.transaction(wait_s=wait_s) as transaction:
                head = transaction.head()
                fresh: set[tuple[str, str, str]] = set()
                # (1) What each unit records, or the refusal of one that lost.
                for unit in units:
                    start = len(drafts)
                    try:
                        if unit.call is not None or unit.epoch != head.epoch:
                            self._check(unit, transaction, head.epoch, fresh)
                        if unit.apply is None:
                            drafts += unit.drafts
                        else:
                            more = unit.apply(transaction)
                            head = transaction.head()  # it may have moved the control epoch
                            drafts += (*unit.drafts, *more)
                    except (StoreConflict, InvalidCall) as refusal:
                        spans.append(refusal)
                    else:
                        spans.append((start, len(drafts)))
                        if self.watch is not None and len(drafts) > start:
                            found = self.watch.look(transaction, drafts[start:], head.epoch)
                            if found:
                                watched += range(len(drafts), len(drafts) + len(found))
                                drafts += found
                                head = transaction.head()
                # (2) Where control data moved, keys perhaps did: none is used from memory.
                if head.epoch != self._epoch:
                    if self._on_epoch is not None:
                        self._on_epoch()
                    self._epoch = head.epoch
                # (3) All of it behind the end of the log.
                if drafts:
                    recorded = self._record(transaction, head, drafts)
        except StoreInDoubt:
            if not recorded:
                raise
            self._find(recorded)
        if recorded:
            self._size = recorded[-1].index + 1
            if self.watch is not None:
                for place in watched:
                    self.watch.recorded(drafts[place], recorded[place])
        answers: list[Answer] = []
        for span in spans:
            answers.append(span if isinstance(span, Exception) else recorded[span[0] : span[1]])
        return answers

    def _record(self, transaction: Transaction, head: Head, drafts: Sequence[Draft]) -> tuple[Recorded, ...]:
        """Append the drafts behind `head`; where they ended up."""
        end, frontier = self._end
        if end != head.frontier:  # another process wrote meanwhile, or this is the first commit
            frontier = Frontier.decode(head.frontier)
            if self._on_others is not None:
                self._on_others(self._size, head.size)
        batch = build(
            head=head,
            frontier=frontier,
            drafts=drafts,
            now=self._clock(),
            log=self._log,
            signer_for=self._signer_for,
            seal=self._seal,
        )
        transaction.append(batch.entries, batch.payloads, batch.nodes, batch.head)
        if self._on_own is not None:
            self._on_own(head.size, batch.head.size)
        self._end = (batch.head.frontier, batch.frontier)
        if batch.behind and self._on_clock_behind is not None:
            self._on_clock_behind(batch.behind)
        return batch.recorded

    def _find(self, recorded: Sequence[Recorded]) -> None:
        """Guarantee that a commit whose answer was lost took place; raises `StoreUnavailable` otherwise.

        Nobody can be in the middle of it: whoever holds the end of the log is alone.
        """
        try:
            with self._store.transaction() as transaction:
                found = transaction.entry(recorded[-1].index)
        except StoreUnavailable as error:
            raise StoreInDoubt("whether the log took the record is not known") from error
        if found is None or found.leaf_hash != recorded[-1].leaf_hash:
            raise StoreUnavailable("the log did not take the record")

    def _lead(self) -> None:
        tickets: list[_Ticket] = []
        while self._waiting and len(tickets) < MAX_GROUP:
            tickets.append(self._waiting.popleft())
        if not tickets:
            return
        try:
            answers = self.commit([ticket.unit for ticket in tickets])
        except BaseException as failure:
            for ticket in tickets:
                ticket.failure = failure
            if not isinstance(failure, Exception):
                raise
            return
        for ticket, answer in zip(tickets, answers, strict=True):
            ticket.answer = answer

    def _withdraw(self, ticket: _Ticket) -> None:
        try:
            self._waiting.remove(ticket)
        except ValueError:
            ticket.failure = StoreUnavailable("the commit is still under way")

    @staticmethod
    def _check(unit: Unit, transaction: Transaction, epoch: int, fresh: set[tuple[str, str, str]]) -> None:
        if unit.epoch is not None and unit.epoch != epoch:
            raise ControlMoved("control data changed")
        call = unit.call
        if call is not None:
            key = (call.principal, call.session, call.call_id)
            if key in fresh or transaction.latest_call(*key) != call.known:
                raise CallMoved("the call was recorded meanwhile")
            fresh.add(key)


_open_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _after_fork() -> None:
    """A child has neither its parent's waiting callers nor the thread that held the lock."""
    for ledger in _open_ledgers:
        ledger._start_afresh()


os.register_at_fork(after_in_child=_after_fork)
