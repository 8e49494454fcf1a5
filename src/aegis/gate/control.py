"""Control state: which agents are stopped, and what is contained. Consulted on every call, exact at every commit.

A change anywhere (another process included) moves the store's epoch. The appender refuses a unit
that was decided under an older one; the state is then read again and the call decided anew. So a
decision needs no look at the store before it, and still no call runs after its agent was stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import orjson
from msgspec import Struct, field

from aegis.core.call import check_name
from aegis.core.canonical import sha256
from aegis.core.json import decode
from aegis.core.names import normalise_name
from aegis.core.outcome import Reason
from aegis.core.ports import Clock, Document, Reader, Store, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.core.times import system_clock
from aegis.detect.fold import name_skeleton
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.events import new_id
from aegis.log.writer import Unit

COLLECTION: Final = "agents"
MAX_REASON_CHARS: Final = 1_000


# What is contained: an agent, a session, a mission with everything below it, a tool, or every agent at once.

CONTAINED: Final = "containment"
ContainedKind = Literal["agent", "session", "mission", "tool", "everything"]
Containing = Literal["hold", "suspend", "revoke"]
_KEY_CHARS: Final = 32


class Contained(Struct, frozen=True, kw_only=True):
    """One thing that is contained: what it is, what is done about it, until when, and why.

    `until` is in microseconds since the epoch, 0 where only a person ends it. `receipt` is the record of it. Where it
    is contained only because something else reached it, `behind` is the id of that, and both end together.
    """

    of: ContainedKind
    subject: str
    does: Containing
    until: int = 0
    since: int = 0
    cause: str = ""
    by: str = ""
    receipt: str = ""
    agent: str = ""
    session: str = ""
    behind: str = ""

    @property
    def id(self) -> str:
        """The name under which it is kept, shown and released."""
        return contained_key(self.of, self.subject)

    def holds_at(self, now: int) -> bool:
        """Whether it has not ended at `now`."""
        return not self.until or now < self.until


def contained_key(of: ContainedKind, subject: str) -> str:
    """The key of what is kept about one subject: one containment a subject."""
    return of if of == "everything" else f"{of}-{sha256(subject.encode()).removeprefix('sha-256:')[:_KEY_CHARS]}"


def session_subject(principal: str, session: str) -> str:
    """The subject of a session: it is its principal's alone."""
    return f"{principal}\n{session}"


def tool_subject(server: str | None, tool: str) -> str:
    """The subject of a tool of one server."""
    return f"{normalise_name(server or '')}\n{normalise_name(tool)}"


_NONE: Final[Mapping[tuple[ContainedKind, str], Contained]] = {}


class ControlState(Struct, frozen=True, kw_only=True):
    """The control data of one epoch; what ends by itself ends by `clock`."""

    epoch: int
    stopped: frozenset[str]
    contained: Mapping[tuple[ContainedKind, str], Contained] = field(default_factory=lambda: _NONE)
    clock: Clock = system_clock

    def stops(self, agent: str) -> bool:
        """Whether `agent` is stopped or suspended: under its name, or under one that looks the same."""
        if not self.stopped and not self.contained:
            return False
        name = name_skeleton(agent)
        return name in self.stopped or self.refuses("everything", "") or self.refuses("agent", name)

    def refuses(self, of: ContainedKind, subject: str) -> bool:
        """Whether every call of this subject is refused now."""
        found = self.contained.get((of, subject))
        return found is not None and found.does != "hold" and found.holds_at(self.clock())

    def holds(self, of: ContainedKind, subject: str) -> Contained | None:
        """What holds the calls of this subject that change anything, or `None`."""
        found = self.contained.get((of, subject))
        return found if found is not None and found.does == "hold" and found.holds_at(self.clock()) else None

    def refuses_call(self, principal: str, session: str, server: str | None, tool: str) -> bool:
        """Whether calls of this session or of this tool are refused now."""
        if not self.contained:
            return False
        return self.refuses("tool", tool_subject(server, tool)) or (
            bool(session) and self.refuses("session", session_subject(principal, session))
        )


class Control:
    """The control state as this process last read it."""

    def __init__(self, store: Store, clock: Clock = system_clock):
        self._store = store
        self._clock = clock
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
            state = read_control(reader, self._clock)
            self._state = state
        return state


def check_runs(reader: Reader, principal: Principal) -> None:
    """Guarantee that the agent of a principal is not stopped; raises `InvalidCall` (403).

    Inside of a transaction it holds for what is recorded there.
    """
    if read_control(reader).stops(principal.agent or principal.id):
        raise stopped_agent()


def stopped_agent() -> InvalidCall:
    """What is answered to an agent that was stopped, where there is no decision to answer with."""
    return InvalidCall("this agent was stopped", code="revoked", status=403, hint="an administrator can restore it")


def read_control(reader: Reader, clock: Clock = system_clock) -> ControlState:
    """The control state as a view of the store holds it."""
    return ControlState(
        epoch=reader.head().epoch,
        stopped=frozenset(name_skeleton(document.key) for document in list_stopped(reader)),
        contained={(one.of, one.subject): one for one in list_contained(reader)},
        clock=clock,
    )


def list_stopped(reader: Reader) -> Iterator[Document]:
    """The switches of the agents that are stopped, by their names."""
    return _every(reader, COLLECTION, "revoked")


def list_contained(reader: Reader) -> Iterator[Contained]:
    """Everything that was contained and not released; what ended by itself may be among it."""
    for document in _every(reader, CONTAINED):
        yield contained_of(document)


def contained_of(document: Document) -> Contained:
    """What a document of the collection says."""
    return decode(document.body, Contained)


def _every(reader: Reader, collection: str, state: str = "") -> Iterator[Document]:
    after = ""
    while page := reader.documents(collection, state=state, after=after):
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
        if state == "active" and not only_new:
            transaction.delete_document(CONTAINED, contained_key("agent", name_skeleton(agent)))
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
    for stored in list_stopped(reader):
        if stored.key != agent and name_skeleton(stored.key) == name_skeleton(agent):
            restored = orjson.dumps(body | {"agent": stored.key})
            yield Document(
                collection=COLLECTION, key=stored.key, version=stored.version + 1, state="active", body=restored
            )
