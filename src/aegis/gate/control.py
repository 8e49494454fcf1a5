"""Control state: which agents are stopped. Consulted on every call, exact at every commit.

A change anywhere (another process included) moves the store's epoch. The appender refuses a unit
that was decided under an older one; the state is then read again and the call decided anew. So a
decision needs no look at the store before it, and still no call runs after its agent was stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from aegis.core.call import check_name
from aegis.core.outcome import Reason
from aegis.core.ports import Document, Reader, Store, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.detect.fold import name_skeleton
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.events import new_id
from aegis.log.writer import Unit

COLLECTION: Final = "agents"
MAX_REASON_CHARS: Final = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlState:
    """The control data of one epoch."""

    epoch: int
    stopped: frozenset[str]

    def stops(self, agent: str) -> bool:
        """Whether `agent` is stopped: under its name, or under one that looks the same."""
        return bool(self.stopped) and name_skeleton(agent) in self.stopped


class Control:
    """The control state as this process last read it."""

    def __init__(self, store: Store):
        self._store = store
        self._lock = threading.Lock()
        self._state: ControlState | None = None

    def latest(self) -> ControlState:
        """The state as last read: good for what is then recorded under its epoch, and for nothing else."""
        return self._state or self.current()

    def current(self) -> ControlState:
        """The state of the store's current epoch; raises `StoreUnavailable` when it cannot be known."""
        state = self._state
        if state is not None and state.epoch == self._store.epoch():
            return state
        with self._lock, self._store.reader() as reader:
            state = _read(reader)
            self._state = state
        return state


def check_runs(reader: Reader, principal: Principal) -> None:
    """Guarantee that the agent of a principal is not stopped; raises `InvalidCall` (403).

    Inside of a transaction it holds for what is recorded there.
    """
    if _read(reader).stops(principal.agent or principal.id):
        raise stopped_agent()


def stopped_agent() -> InvalidCall:
    """What is answered to an agent that was stopped, where there is no decision to answer with."""
    return InvalidCall("this agent was stopped", code="revoked", status=403, hint="an administrator can restore it")


def _read(reader: Reader) -> ControlState:
    epoch = reader.head().epoch
    return ControlState(epoch=epoch, stopped=frozenset(name_skeleton(document.key) for document in _stopped(reader)))


def _stopped(reader: Reader) -> Iterator[Document]:
    after = ""
    while page := reader.documents(COLLECTION, state="revoked", after=after):
        yield from page
        after = page[-1].key


def set_agent(agent: str, *, state: str, reason: str, principal: str, only_new: bool = False) -> Unit:
    """The unit that stops (`revoked`) or restores (`active`) an agent, with its receipt.

    With `only_new` it raises `StoreConflict` where the agent was switched before: who makes an agent known undoes no
    revocation. Raises `InvalidCall` for a name that no agent can have: whoever meant an agent stopped nobody.
    """
    check_name("agent", agent)
    if len(reason) > MAX_REASON_CHARS:
        raise InvalidCall(f"`reason` must have at most {MAX_REASON_CHARS} characters")
    body: dict[str, Any] = {"agent": agent, "state": state, "reason": reason, "by": principal}

    def apply(transaction: Transaction) -> list[Draft]:
        stored = transaction.document(COLLECTION, agent)
        if stored is not None and only_new:
            raise StoreConflict("this agent is known already")
        version = stored.version + 1 if stored is not None else 1
        written = [Document(collection=COLLECTION, key=agent, version=version, state=state, body=orjson.dumps(body))]
        if state == "active" and not only_new:
            written.extend(_restored(transaction, body))
        for document in written:
            transaction.put_document(document)
        transaction.bump_epoch()
        return [
            Draft(
                members={
                    "kind": "revocation",
                    "receipt_id": new_id(),
                    "principal": principal,
                    "agent": document.key,
                    "action": "revoke" if state == "revoked" else "restore",
                    "reason": Reason.REVOKED.value if state == "revoked" else Reason.NONE.value,
                }
            )
            for document in written
        ]

    return Unit(apply=apply)


def _restored(reader: Reader, body: dict[str, Any]) -> Iterator[Document]:
    """What is stopped under names that look like the one that is restored: one of them would keep it stopped."""
    agent: str = body["agent"]
    for stored in _stopped(reader):
        if stored.key != agent and name_skeleton(stored.key) == name_skeleton(agent):
            restored = orjson.dumps(body | {"agent": stored.key})
            yield Document(
                collection=COLLECTION, key=stored.key, version=stored.version + 1, state="active", body=restored
            )
