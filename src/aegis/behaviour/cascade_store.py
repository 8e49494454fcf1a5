"""What the store keeps of a cascade: its source, what was written and by whom, and the sessions that it reached.

The names of objects are kept as keyed digests, and the way of a session is encrypted: both are arguments of calls.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import orjson
from msgspec import Struct, structs, to_builtins

from aegis.behaviour.cascades import MAX_FOUND, Downstream, FlowKind, FlowSource, path_to
from aegis.context.heads import seal, unseal
from aegis.core.json import convert, decode
from aegis.core.ports import Clock, Document, Reader, Transaction
from aegis.core.times import rfc3339
from aegis.gate.control import (
    CONTAINED,
    Contained,
    ContainedKind,
    ControlState,
    contained_key,
    list_contained,
    read_control,
)
from aegis.gate.parts import Parts

CASCADES: Final = "cascades"
REACHED: Final = "cascade_reached"
FLOWS: Final = "cascade_flows"
MAX_FLOWS: Final = 4_096  # objects and names of one cascade that are remembered


class Cascade(Struct, frozen=True, kw_only=True):
    """What is followed of one containment. `id` is that of the containment; `flows` are counted by kind.

    `secret` is the encrypted key of the digests. `complete` says that nothing was left out for a bound, and `idle` that
    nothing came of it and nothing can any more: its source is stopped.
    """

    id: str
    of: ContainedKind
    subject: str
    secret: bytes
    since: int
    until: int = 0
    cause: str = ""
    receipt: str = ""
    agent: str = ""
    flows: Mapping[FlowKind, int] = {}
    reached: int = 0
    complete: bool = True
    idle: bool = False

    @property
    def source(self) -> FlowSource:
        """What is contained, as flows see it."""
        return FlowSource(self.of, self.subject)

    def holds_in(self, state: ControlState) -> bool:
        """Whether the containment is in force."""
        if self.of == "agent" and self.subject in state.stopped:
            return True
        one = state.contained.get((self.of, self.subject))
        return one is not None and one.holds_at(state.clock())


class ReachedSession(Struct, frozen=True, kw_only=True):
    """A session that a cascade reached: how, as which, when, and what was done with it."""

    number: int
    session: str
    agent: str
    origin: str
    by: str
    receipt: str
    time: int
    does: str

    @property
    def step(self) -> Downstream:
        """How it was reached."""
        return Downstream(self.session, self.agent, self.origin, self.by, self.receipt)


class StoredTaint:
    """What the store knows of one cascade, inside of a transaction; it is written to as steps are followed."""

    def __init__(self, parts: Parts, transaction: Transaction, cascade: Cascade, key: bytes):
        self._parts = parts
        self._transaction = transaction
        self._key = key
        self._version = 0
        self.cascade = cascade

    def is_source(self, session: str) -> bool:
        return self._at(FLOWS, "source", session) is not None

    def is_reached(self, session: str) -> bool:
        return self._transaction.document(REACHED, reached_key(self.cascade.id, session)) is not None

    def origin_of(self, kind: FlowKind, name: str) -> str | None:
        stored = self._at(FLOWS, kind, name)
        return None if stored is None else stored.body.decode()

    def holds(self, kind: FlowKind) -> bool:
        return bool(self.cascade.flows.get(kind))

    def note(self, kind: FlowKind, name: str, session: str) -> None:
        if self._at(FLOWS, kind, name) is not None:
            return
        known = self._read().flows
        if sum(known.values()) >= MAX_FLOWS:
            self._change(complete=False)
            return
        self._put(kind, name, session)
        self._change(flows={**known, kind: known.get(kind, 0) + 1})
        if not known.get(kind):
            self._transaction.bump_epoch()  # what is followed is read once for each epoch

    def note_source(self, session: str) -> None:
        if session != self.cascade.subject and self._at(FLOWS, "source", session) is None:
            self._put("source", session, session)

    def reach(self, found: Downstream, does: str, now: int) -> bool:
        """Remember a session that was reached; whether there is room for it."""
        if self._read().reached >= MAX_FOUND:
            self._change(complete=False)
            return False
        one = ReachedSession(number=self.cascade.reached, time=now, does=does, **found._asdict())
        self._transaction.put_document(
            Document(
                collection=REACHED,
                key=reached_key(self.cascade.id, found.session),
                version=1,
                body=seal(self._parts, orjson.dumps(to_builtins(one))),
            )
        )
        self._change(reached=self.cascade.reached + 1)
        return True

    def _read(self) -> Cascade:
        """The cascade as it was written last: what is known of it may be older."""
        stored = self._transaction.document(CASCADES, self.cascade.id)
        if stored is not None:
            self.cascade, self._version = _cascade_of(stored), stored.version
        return self.cascade

    def _change(self, **changes: Any) -> None:
        """Write the cascade with some members changed, after `_read`."""
        changed = structs.replace(self.cascade, **changes)
        if changed != self.cascade:
            self.cascade, self._version = changed, self._version + 1
            put_cascade(self._transaction, changed, self._version)

    def _at(self, collection: str, kind: str, name: str) -> Document | None:
        return self._transaction.document(collection, self._place(kind, name))

    def _put(self, kind: str, name: str, session: str) -> None:
        key = self._place(kind, name)
        self._transaction.put_document(Document(collection=FLOWS, key=key, version=1, body=session.encode()))

    def _place(self, kind: str, name: str) -> str:
        digest = hmac.digest(self._key, f"{kind}\n{name}".encode("utf-8", "surrogatepass"), "sha256").hex()[:32]
        return f"{self.cascade.id}#{digest}"


def reached_key(cascade: str, session: str) -> str:
    """The key under which a reached session is kept: those of one cascade stand together."""
    return f"{cascade}#{blake2b(session.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def put_cascade(transaction: Transaction, cascade: Cascade, version: int) -> None:
    body = orjson.dumps({**to_builtins(structs.replace(cascade, secret=b"")), "secret": cascade.secret.hex()})
    transaction.put_document(Document(collection=CASCADES, key=cascade.id, version=version, body=body))


def _cascade_of(document: Document) -> Cascade:
    value = orjson.loads(document.body)
    return convert({**value, "secret": bytes.fromhex(value["secret"])}, Cascade, builtin_types=(bytes,))


def read_cascades(reader: Reader) -> list[Cascade]:
    """Every cascade that is kept, in the order of their ids."""
    return [_cascade_of(one) for one in documents_of(reader, CASCADES, "")]


def reached_in(parts: Parts, reader: Reader, cascade: str) -> list[ReachedSession]:
    """The sessions that one cascade reached, in the order in which they were."""
    found = [decode(unseal(parts, one.body), ReachedSession) for one in documents_of(reader, REACHED, f"{cascade}#")]
    return sorted(found, key=lambda one: one.number)


def documents_of(reader: Reader, collection: str, prefix: str) -> Iterator[Document]:
    """The documents whose keys begin with `prefix`."""
    after = prefix
    while page := reader.documents(collection, after=after):
        for one in page:
            if not one.key.startswith(prefix):
                return
            yield one
        after = page[-1].key


def end_orphans(transaction: Transaction, clock: Clock) -> None:
    """Release what is contained for being downstream of something that is not contained any more."""
    state = read_control(transaction, clock)
    causes = {one.behind for one in state.contained.values() if one.behind}
    if causes:
        standing = {one.id for one in state.contained.values() if one.holds_at(clock())}
        standing |= {contained_key("agent", name) for name in state.stopped}
        for cause in sorted(causes - standing):
            end_behind(transaction, cause)


def end_behind(transaction: Transaction, cause: str) -> int:
    """Release what is contained for being downstream of `cause`, unless something else still reaches it."""
    ended = 0
    for one in [one for one in list_contained(transaction) if one.behind == cause]:
        stored = transaction.document(CONTAINED, one.id)
        other = _also_behind(transaction, one, cause)
        if stored is None:
            continue
        if other:
            body = orjson.dumps(to_builtins(structs.replace(one, behind=other)))
            transaction.put_document(
                Document(collection=CONTAINED, key=one.id, version=stored.version + 1, body=body)
            )  # fmt: skip
        else:
            transaction.delete_document(CONTAINED, one.id)
            ended += 1
    if ended:
        transaction.bump_epoch()
    return ended


def _also_behind(transaction: Transaction, one: Contained, cause: str) -> str:
    """Another cascade in force that reached the same session."""
    others = [other for other in read_cascades(transaction) if other.id != cause]
    if not others:
        return ""
    state = read_control(transaction)
    for other in others:
        if transaction.document(REACHED, reached_key(other.id, one.subject)) is not None and other.holds_in(state):
            return other.id
    return ""


def shown_cascade(parts: Parts, reader: Reader, cascade: Cascade) -> dict[str, Any]:
    """What one cascade reached, as it is shown: each session with its way, and what was done with it."""
    sessions = reached_in(parts, reader, cascade.id)
    reached = {one.session: one.step for one in sessions}
    held = {one.subject: one for one in list_contained(reader) if one.of == "session"}
    items = []
    for one in sessions:
        now = held.get(one.session)
        items.append({
            **shown_step(one.step, reached),
            "do": "released" if one.does != "mark" and now is None else one.does,
            "since": rfc3339(one.time),
        })  # fmt: skip
    return {"complete": cascade.complete, "items": items}


def shown_step(last: Downstream, reached: Mapping[str, Downstream]) -> dict[str, Any]:
    """One session that was reached, with its way."""
    principal, _, name = last.session.partition("\n")
    way = [
        {"from": step.origin.replace("\n", "/"), "agent": step.agent, "by": step.by, "receipt": step.receipt}
        for step in path_to(last.session, reached)
    ]
    return {"principal": principal, "session": name, "agent": last.agent, "way": way}


def cascade_of(reader: Reader, key: str) -> Cascade | None:
    """The cascade of one containment, `None` where it is not followed."""
    document = reader.document(CASCADES, key)
    return None if document is None else _cascade_of(document)
