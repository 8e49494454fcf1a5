"""What became of the calls of a conversation: from the log, and from records beside it, never from the client.

A restart, or another gateway on the same store, knows the same. Records hold no arguments: those are
read from the encrypted payload of the decision, so that erasing it erases them here too.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import orjson
from msgspec import Struct, structs

from aegis.approvals.queue import find
from aegis.bootstrap.deployment import DeployedGate
from aegis.core.bounded import Bounded
from aegis.core.call import MAX_NAME_CHARS
from aegis.core.decision import SaidTurn
from aegis.core.outcome import Outcome
from aegis.core.ports import Document, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.core.times import MICROS
from aegis.enforce.memory import UNIQUE_CHARS
from aegis.gate.gate import Gate
from aegis.gate.repeat import load_payload
from aegis.log.writer import Unit
from aegis.proxies.models.formats import BY_NAME
from aegis.wire.model import Refused, Removal, Wire

# What was taken out of an answer, as it is kept: without arguments, which stay in the encrypted log.

State = Literal["refused", "held", "released"]
Kind = Literal["ref", "call", "anchor"]


class TakenOut(Struct, frozen=True, kw_only=True):
    """One call that was taken out.

    `gate_id` and `decision_id` say how it was decided (both empty where its arguments were unreadable);
    `held` waits for a person, `released` was given to the client after one agreed.
    """

    refused: Refused
    tool: str
    server: str | None
    gate_id: str
    decision_id: str
    approval_id: str = ""
    state: State = "refused"


class Record(Struct, frozen=True, kw_only=True):
    """All that was taken out of one choice of one answer, with what it takes to give it back later."""

    ref: str
    format: str
    answer_id: str
    model: str
    taken: tuple[TakenOut, ...]
    kept: tuple[str, ...]
    text: str

    @property
    def removal(self) -> Removal:
        """What a dialect puts back: every call that the client never got."""
        refused = tuple(one.refused for one in self.taken if one.state != "released")
        return Removal(refused=refused, kept=self.kept, ref=self.ref, text=self.text)

    @property
    def held(self) -> tuple[TakenOut, ...]:
        """The calls that wait for a person."""
        return tuple(one for one in self.taken if one.state == "held")

    @property
    def weight(self) -> int:
        """About how many bytes it takes to remember."""
        return 200 + sum(len(orjson.dumps(one.refused.call, default=str)) for one in self.taken)

    def moved(self, changes: dict[str, tuple[State, str]]) -> Record:
        """The record after calls (by `gate_id`) changed state; an empty message keeps the old one."""
        taken: list[TakenOut] = []
        for one in self.taken:
            state, message = changes.get(one.gate_id, (one.state, "")) if one.state == "held" else (one.state, "")
            refused = structs.replace(one.refused, message=message) if message else one.refused
            taken.append(structs.replace(one, state=state, refused=refused))
        return structs.replace(self, taken=tuple(taken))


def to_wire(record: Record) -> Wire:
    """The record as it is kept: the calls without arguments, and without what the model said."""
    dialect = BY_NAME[record.format].dialect
    taken = [
        {
            "call": dialect.with_arguments(one.refused.call, {}),
            "call_id": one.refused.call_id,
            "index": one.refused.index,
            "message": one.refused.message,
            "tool": one.tool,
            "server": one.server,
            "gate_id": one.gate_id,
            "decision_id": one.decision_id,
            "approval_id": one.approval_id,
            "state": one.state,
        }
        for one in record.taken
    ]
    return {
        "ref": record.ref,
        "format": record.format,
        "answer_id": record.answer_id,
        "model": record.model,
        "kept": list(record.kept),
        "taken": taken,
    }


def from_wire(wire: Wire, arguments: Callable[[str], dict[str, Any]]) -> Record:
    """The record again; `arguments` gives those of a decision."""
    dialect = BY_NAME[wire["format"]].dialect
    taken = tuple(
        TakenOut(
            refused=Refused(
                call=dialect.with_arguments(one["call"], arguments(one["decision_id"])),
                call_id=one["call_id"],
                index=one["index"],
                message=one["message"],
            ),
            tool=one["tool"],
            server=one["server"],
            gate_id=one["gate_id"],
            decision_id=one["decision_id"],
            approval_id=one["approval_id"],
            state=one["state"],
        )
        for one in wire["taken"]
    )
    return Record(
        ref=wire["ref"],
        format=wire["format"],
        answer_id=wire["answer_id"],
        model=wire["model"],
        kept=tuple(wire["kept"]),
        taken=taken,
        text="",
    )


CALLS: Final = "proxy_calls"
REMOVALS: Final = "proxy_removals"
SIGNED: Final = "proxy_reasoning"
KEPT_MONTHS: Final = 6  # a conversation that rests longer starts anew; without an end the records fill the disk
_LOOKED_BACK: Final = 36  # months before those in which records are still looked for
_PAGE: Final = 500
MAX_ITEMS: Final = 50_000  # a cache: what is forgotten here is read from the store again
MAX_BYTES: Final = 67_108_864


class BookScope(Struct, frozen=True, kw_only=True):
    """Whose conversation it is: names of one principal's session mean nothing in another's."""

    principal: Principal
    session: str = ""

    def key(self, *parts: str) -> str:
        """A key of the store that only this scope makes; bounded, whatever the client sends."""
        given = orjson.dumps([self.principal.id, self.session, *parts])
        return hashlib.sha256(given).hexdigest()


class IssuedCall(Struct, frozen=True, kw_only=True):
    """A call that was decided here: under which decision, whether it was let through, and whether by a person."""

    decision_id: str
    allowed: bool
    released: bool = False


class Book:
    """The book of one gateway; safe for one event loop."""

    def __init__(self, gate: Gate):
        self._gate = gate
        self._issued: Bounded[str, IssuedCall] = Bounded(MAX_ITEMS, MAX_BYTES)
        self._answers: Bounded[str, str] = Bounded(MAX_ITEMS, MAX_BYTES)
        self._records: Bounded[str, Record | str] = Bounded(MAX_ITEMS, MAX_BYTES)
        self._seen: Bounded[tuple[str, str], tuple[bool, Any]] = Bounded(MAX_ITEMS, MAX_BYTES)
        self._signed: Bounded[str, str] = Bounded(MAX_ITEMS, MAX_BYTES)

    def gate_id(self, scope: BookScope, answer_id: str, call_id: str) -> str:
        """The id under which a provider's call is decided: its own, where that is unique for ever.

        Ids that a server counts anew get a suffix, or a call of yesterday would stand for today's.
        """
        if not call_id or len(call_id) > MAX_NAME_CHARS - 17:
            return secrets.token_hex(16)
        if len(call_id) >= UNIQUE_CHARS:
            key = scope.key("answer", call_id)
            first = self._answers.get(key)
            if first is None:
                self._answers.put(key, answer_id)
            if first is None or first == answer_id:
                return call_id
        return f"{call_id}.{secrets.token_hex(8)}"

    def issued(self, scope: BookScope, call_id: str, digest: str = "") -> IssuedCall | None:
        """What was decided on a call, or `None`. With a `digest`, only on that very call as it was let through."""
        if not call_id:
            return None
        key = scope.key("call", call_id, digest)
        known = self._issued.get(key)
        if known is None:
            known = self._find(scope, call_id, digest)
            if known is not None and known.allowed:  # a refusal may still turn into an approval
                self._issued.put(key, known)
        return known

    def alias(self, scope: BookScope, call_id: str, digest: str, gate_id: str) -> Sequence[Document]:
        """The records by which a call is found that was decided under another id than the provider's."""
        if not call_id or gate_id == call_id:
            return ()
        keys = [scope.key("call", call_id, digest), scope.key("call", call_id, "")]
        for key in keys:
            self._issued.drop(key)
        return [Document(collection=CALLS, key=key, version=1, body=gate_id.encode()) for key in keys]

    def record(self, scope: BookScope, kind: Kind, key: str) -> Record | None:
        """What was taken out of an answer and is known by this key."""
        if not key:
            return None
        place = scope.key(kind, key)
        known = self._records.get(place)
        if known is None:
            with self._gate.parts.store.reader() as reader:
                document = reader.document(REMOVALS, place)
            if document is None:
                return None
            found: Wire | str = orjson.loads(document.body)
            known = found if isinstance(found, str) else from_wire(found, self.arguments)
            self._records.put(place, known, len(document.body))
        return self.record(scope, "ref", known) if isinstance(known, str) else known

    def remember(self, scope: BookScope, record: Record, keys: Sequence[tuple[Kind, str]] = ()) -> Sequence[Document]:
        """The records by which `record` is found again, by its `ref` and by other keys."""
        place = scope.key("ref", record.ref)
        self._records.put(place, record, record.weight)
        documents = [Document(collection=REMOVALS, key=place, version=1, body=orjson.dumps(to_wire(record)))]
        pointer = orjson.dumps(record.ref)
        for other in [scope.key(kind, key) for kind, key in keys if key]:
            self._records.put(other, record.ref)
            documents.append(Document(collection=REMOVALS, key=other, version=1, body=pointer))
        return documents

    def cleared(self, scope: BookScope, anchors: Sequence[str]) -> Sequence[Document]:
        """The records by which anchors stand for nothing any more, where they stood for something."""
        stale = [anchor for anchor in anchors if self.record(scope, "anchor", anchor) is not None]
        for anchor in stale:
            self._records.put(scope.key("anchor", anchor), "")
        return [
            Document(collection=REMOVALS, key=scope.key("anchor", anchor), version=1, body=b'""') for anchor in stale
        ]

    def forget(self, scope: BookScope, record: Record) -> None:
        """Read a record from the store again the next time."""
        self._records.drop(scope.key("ref", record.ref))

    def signed(self, scope: BookScope, name: str) -> str | None:
        """The digest that is kept of signed reasoning, by that of its signature."""
        key = scope.key("signed", name)
        known = self._signed.get(key)
        if known is None:
            with self._gate.parts.store.reader() as reader:
                document = reader.document(SIGNED, key)
            if document is None:
                return None
            known = document.body.decode()
            self._signed.put(key, known)
        return known

    def learn_signed(self, scope: BookScope, name: str, digest: str) -> Document:
        """The record by which signed reasoning is known again."""
        key = scope.key("signed", name)
        self._signed.put(key, digest)
        return Document(collection=SIGNED, key=key, version=1, body=digest.encode())

    async def write(self, documents: Sequence[Document]) -> None:
        """Make records durable; raises `StoreError` where that cannot be done."""
        if not documents:
            return

        month = _month(self._gate.parts.clock())

        def apply(transaction: Transaction) -> Sequence[Draft]:
            for document in documents:
                stored = transaction.document(document.collection, document.key)
                version = 1 if stored is None else stored.version + 1
                transaction.put_document(
                    Document(
                        collection=document.collection,
                        key=document.key,
                        version=version,
                        body=document.body,
                        state=_word(month),
                    )
                )
            return ()

        await self._gate.arecord(Unit(apply=apply))

    def prune(self) -> int:
        """Forget records that nobody wrote for `KEPT_MONTHS`; how many. Raises `StoreError`.

        What the log holds stays: results of calls that were forgotten here are refused as unknown.
        """
        store, newest = self._gate.parts.store, _month(self._gate.parts.clock()) - KEPT_MONTHS
        forgotten = 0
        for collection in (CALLS, REMOVALS, SIGNED):
            for month in range(newest - _LOOKED_BACK, newest):
                with store.reader() as reader:
                    more = bool(reader.documents(collection, state=_word(month), limit=1))
                while more:
                    # Listed by the writer itself: what a conversation writes again meanwhile is young, and stays.
                    with store.transaction() as transaction:
                        old = transaction.documents(collection, state=_word(month), limit=_PAGE)
                        for document in old:
                            transaction.delete_document(collection, document.key)
                    forgotten += len(old)
                    more = len(old) == _PAGE
        return forgotten

    def seen(self, decision_id: str, digest: str) -> tuple[bool, Any] | None:
        """What may be seen of a result that was judged before: whether it is changed, and to what."""
        return self._seen.get((decision_id, digest))

    def learn(self, decision_id: str, digest: str, changed: bool, value: Any) -> None:
        """Remember what may be seen of a result."""
        self._seen.put((decision_id, digest), (changed, value), len(value) if isinstance(value, str) else 1_000)

    def arguments(self, decision_id: str) -> dict[str, Any]:
        """The arguments of a decided call; empty where they were erased or never recorded."""
        if not decision_id:
            return {}
        with self._gate.parts.store.reader() as reader:
            entry = reader.entry_by_id(decision_id)
            payload = None if entry is None else load_payload(self._gate.parts, reader, entry)[0]
        found: Mapping[str, Any] = payload or {}
        return dict(found.get("arguments") or {})

    def _find(self, scope: BookScope, call_id: str, digest: str) -> IssuedCall | None:
        with self._gate.parts.store.reader() as reader:
            alias = reader.document(CALLS, scope.key("call", call_id, digest))
            gate_id = call_id if alias is None else alias.body.decode()
            index = reader.latest_call(scope.principal.id, scope.session, gate_id)
            entry = None if index is None else reader.entry(index)
            if entry is None:
                return None
            payload, _ = load_payload(self._gate.parts, reader, entry)
            body = orjson.loads(entry.body)
            allowed = entry.decision in (Outcome.ALLOW.word, Outcome.SANITIZE.word)
            approval = find(reader, body["approval_id"]) if "approval_id" in body else None
            released = approval is not None and approval.state == "redeemed"
            allowed = allowed or released
        if digest and (payload is None or payload["call_digest"] != digest):
            return None
        return IssuedCall(decision_id=entry.receipt_id, allowed=allowed, released=released)


def _month(micros: int) -> int:
    """Months since the beginning of the calendar."""
    moment = datetime.fromtimestamp(micros / MICROS, UTC)
    return moment.year * 12 + moment.month - 1


def _word(month: int) -> str:
    return f"{month // 12:04}-{month % 12 + 1:02}"


# What users say, as the gateway's proxies record it: on the credential of whoever brings it.


class Speaking:
    """Records turns in the sessions of `principal`."""

    def __init__(self, gate: DeployedGate, principal: Principal):
        self._gate = gate
        self._principal = principal

    def add_turn(self, session: str, text: str, *, documents: Sequence[str] = ()) -> SaidTurn:
        """Record a turn; raises what the gate raises."""
        return self._gate.add_turn(session, text, documents=documents, principal=self._principal)

    async def aadd_turn(self, session: str, text: str, *, documents: Sequence[str] = ()) -> SaidTurn:
        """`add_turn` for event loops."""
        return await self._gate.aadd_turn(session, text, documents=documents, principal=self._principal)
