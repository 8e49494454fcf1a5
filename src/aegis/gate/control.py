"""Control state: which agents are stopped. Consulted on every call, exact at every commit.

A change anywhere (another process included) moves the store's epoch. The appender refuses a unit
that was decided under an older one; the state is then read again and the call decided anew. So a
decision needs no look at the store before it, and still no call runs after its agent was stopped.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

import orjson

from aegis.audit.writer import Unit
from aegis.core.call import check_name
from aegis.core.outcome import Reason
from aegis.core.ports import Document, Store, Transaction
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.ids import new_id

COLLECTION: Final = "agents"
MAX_REASON_CHARS: Final = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlState:
    """The control data of one epoch."""

    epoch: int
    revoked: frozenset[str]


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
        with self._lock, self._store.reader(settled=False) as reader:
            head = reader.head()
            revoked: set[str] = set()
            after = ""
            while page := reader.documents(COLLECTION, state="revoked", after=after):
                revoked.update(document.key for document in page)
                after = page[-1].key
            state = ControlState(epoch=head.epoch, revoked=frozenset(revoked))
            self._state = state
        return state


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
        transaction.put_document(
            Document(collection=COLLECTION, key=agent, version=version, state=state, body=orjson.dumps(body))
        )
        transaction.bump_epoch()
        return [
            Draft(
                members={
                    "kind": "revocation",
                    "receipt_id": new_id(),
                    "principal": principal,
                    "agent": agent,
                    "action": "revoke" if state == "revoked" else "restore",
                    "reason": Reason.REVOKED.value if state == "revoked" else Reason.NONE.value,
                }
            )
        ]

    return Unit(apply=apply)
