"""What a session remembers of what was said, read and done: written with receipts, shared through the store.

A head document holds counts, labels and sources; each result is one segment beside it, sealed, and never written
again. A process keeps sessions folded and takes in what others added: a call costs the same however long its session
is. Values stand in segments as keyed hashes; the key stands in the sealed part of the head. What was read can be worked
out again from receipts and payloads, and every document stands under the seal of the store.

Caps of a session are those of `policy.dataflow.reading`; a process keeps at most `MAX_KEPT` sessions.
"""

from __future__ import annotations

import copy
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from aegis.approvals.grants import Grant, stands
from aegis.context.sessions import key_of_session, session_key
from aegis.context.turns import UserTurn, load_turns, said_in
from aegis.core.call import MAX_NAME_CHARS
from aegis.core.outcome import Outcome
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.errors import StoreConflict
from aegis.gate.participants import (
    DecisionAttempt,
    DecisionRecord,
    Part,
    Participant,
    ResultAttempt,
    ResultPart,
    ResultRecord,
    Write,
)
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload
from aegis.policy.dataflow.declare import NOTHING
from aegis.policy.dataflow.named import is_named
from aegis.policy.dataflow.reading import (
    MAX_DOCUMENTS,
    FlowGrant,
    ReadDocument,
    ResultReading,
    SessionView,
    read_result,
)
from aegis.policy.dataflow.words import read_words
from aegis.policy.model import Evaluation, ResultEvaluation
from aegis.policy.session import COUNTED

COLLECTION: Final = "session-memory"
SEGMENTS: Final = "session-reads"
MAX_KEPT: Final = 2_048  # sessions that one process keeps folded: the oldest are read again from the store
MAX_SOURCES: Final = 512  # names of tools; a flood of made-up ones is not kept
MAX_DEEP: Final = 16  # parents of parents that are followed
MAX_GRANTS: Final = 256  # of one session: the oldest are asked for again
SAID: Final = "aegis:session/turn"  # the source of what a user pasted
_KEY_BYTES: Final = 16


class MemoryHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The head document of a session."""

    key: bytes
    reads: int = 0  # moves with everything that a verdict depends on
    segments: int = 0
    labels: tuple[str, ...] = ()
    untrusted: bool = False
    saturated: bool = False
    sources: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    calls: int = 0
    denials: int = 0
    turns: int = 0
    drift: int = 0
    parent: str = ""
    inherited: int = 0  # segments of the parent that it had read when this session began
    grants: tuple[FlowGrant, ...] = ()


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_head: Final = msgspec.msgpack.Decoder(MemoryHead).decode
_decode_segment: Final = msgspec.msgpack.Decoder(tuple[ReadDocument, ResultReading]).decode


class _Kept:
    """One session folded: its view, and how far it was read."""

    __slots__ = ("segments", "turns", "version", "view")

    def __init__(self, view: SessionView):
        self.view = view
        self.version = 0
        self.segments = 0
        self.turns = -1


class SessionMemory(Participant):
    """Shows guards what a session said and read, and remembers what its calls do and give back."""

    def __init__(self, parts: Parts):
        self._parts = parts
        self._lock = threading.RLock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def view(self, asked: DecisionAttempt) -> Part | None:
        subject = asked.subject
        if not subject.session or subject.worker is not None or not asked.policy.dataflow.remembers:
            return None
        key = session_key(subject.principal, subject.session)
        with self._parts.store.reader() as reader:
            view = self.load(reader, key)
            if view is not None and view.grants:
                now = self._parts.clock()
                view.grants = tuple(one for one in view.grants if stands(reader, one.id, now))
        return _MemoryPart(self._parts, key, view or SessionView(id=subject.session))

    def result(self, asked: ResultAttempt) -> ResultPart | None:
        if not asked.session or not asked.policy.dataflow.remembers:
            return None
        key = session_key(asked.principal, asked.session)
        with self._parts.store.reader() as reader:
            view = self.load(reader, key)
            arguments = self._arguments(reader, asked) if view is not None and view.words is not None else {}
        named = view is not None and is_named(view.words, asked.tool, arguments)
        return _ResultPart(self._parts, key, os.urandom(_KEY_BYTES) if view is None else view.key, named)

    def load(self, reader: Reader, key: str) -> SessionView | None:
        """What a session knows now; `None` where it remembers nothing yet."""
        document = reader.document(COLLECTION, key)
        if document is None:
            return None
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                kept = self._kept[key] = _Kept(SessionView(id=orjson.loads(key)[1]))
                if len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(key)
            if kept.version != document.version:
                self._fold(reader, key, kept, read_head(self._parts, document))
                kept.version = document.version
            return copy.copy(kept.view)  # counts of this moment; what grows is shared

    def _fold(self, reader: Reader, key: str, kept: _Kept, head: MemoryHead) -> None:
        view = kept.view
        view.key = head.key
        if kept.segments == 0 and head.parent:
            self._inherit(reader, view, head, 0)
        for number in range(kept.segments, head.segments):
            segment = read_segment(self._parts, reader, key, number)
            if segment is None:  # it was erased: what it held may be anywhere
                view.saturated = True
            else:
                view.add(*segment)
        kept.segments = head.segments
        if kept.turns != head.turns:
            texts = words_of(self._parts, reader, key, 0)
            view.words = read_words(texts) if texts else None
            kept.turns = head.turns
        view.labels = frozenset(head.labels)
        view.untrusted = head.untrusted
        view.saturated = view.saturated or head.saturated
        view.sources = frozenset(head.sources)
        view.effects = frozenset(head.effects)
        view.tools = frozenset(head.tools)
        view.calls, view.denials, view.turns, view.drift = head.calls, head.denials, head.turns, head.drift
        view.reads = head.reads
        view.grants = head.grants

    def _inherit(self, reader: Reader, view: SessionView, head: MemoryHead, depth: int) -> None:
        """Take in what the parent had read: under the key that both share."""
        document = reader.document(COLLECTION, head.parent)
        if document is None or depth >= MAX_DEEP:
            view.saturated = True
            return
        above = read_head(self._parts, document)
        if above.parent:
            self._inherit(reader, view, above, depth + 1)
        for number in range(head.inherited):
            segment = read_segment(self._parts, reader, head.parent, number)
            if segment is None:
                view.saturated = True
            else:
                view.add(*segment)

    def _arguments(self, reader: Reader, asked: ResultAttempt) -> Mapping[str, Any]:
        entry = reader.entry_by_id(asked.decision_id)
        payload = None if entry is None else load_payload(self._parts, reader, entry)[0]
        if payload is None:
            return {}
        found: Mapping[str, Any] = payload.get("patched", payload.get("arguments", {}))
        return found


class _MemoryPart(Part):
    """One call of a session: what guards are shown of it, and what recording its decision counts."""

    __slots__ = ("_key", "_parts", "_view")

    def __init__(self, parts: Parts, key: str, view: SessionView):
        self._parts = parts
        self._key = key
        self._view = view

    def shows(self) -> Mapping[str, Any]:
        return {"context": self._view}

    def look(self, transaction: Transaction, record: DecisionRecord, *, last: bool) -> Write | None:
        """Count the call; where it runs, nothing that its verdict depends on may have moved since."""
        document = transaction.document(COLLECTION, self._key)
        head = MemoryHead(key=os.urandom(_KEY_BYTES)) if document is None else read_head(self._parts, document)
        if record.runs and head.reads != self._view.reads:
            raise StoreConflict("the session read or said something meanwhile")
        if record.runs and _counts(head, self._view, record.asked.policy.dataflow.reads):
            raise StoreConflict("another call of the session was decided meanwhile")
        evaluation = record.evaluation
        if record.runs:
            head = _ran(head, record.asked, evaluation)
        elif evaluation.combined.outcome is Outcome.BLOCK:
            head = msgspec.structs.replace(head, denials=head.denials + 1)
        elif document is not None:
            return None

        def write(transaction: Transaction) -> Sequence[Draft]:
            put_head(self._parts, transaction, self._key, head, 0 if document is None else document.version)
            return ()

        return write


def _counts(head: MemoryHead, view: SessionView, reads: frozenset[str]) -> bool:
    """Whether what policies read of earlier calls has moved since."""
    if reads.isdisjoint(COUNTED):
        return False
    now = {"calls": head.calls, "denials": head.denials, "effects": set(head.effects), "tools": set(head.tools)}
    return any(now[name] != getattr(view, name) for name in COUNTED & reads)


def _ran(head: MemoryHead, asked: DecisionAttempt, evaluation: Evaluation) -> MemoryHead:
    """The head after a call that runs: it counts at once, with what is declared of its tool."""
    call = asked.subject.call
    flow = asked.policy.flow(call.server, call.tool).result
    name = source_of(call.server, call.tool)
    reads = head.reads
    untrusted = head.untrusted or flow.trust == "untrusted"
    labels = head.labels
    if flow.sensitivity is not None and flow.sensitivity not in labels:
        labels = tuple(sorted({*labels, flow.sensitivity}))
    sources = head.sources
    if (flow.trust is not None or flow.sensitivity is not None) and name not in sources:
        sources = _with(sources, name)
    if untrusted != head.untrusted or labels != head.labels or sources != head.sources:
        reads += 1
    effects = head.effects
    if not evaluation.effects <= frozenset(effects):
        effects = tuple(sorted({*effects, *evaluation.effects}))
    tools = head.tools if name in head.tools else _with(head.tools, name)
    return msgspec.structs.replace(
        head, reads=reads, untrusted=untrusted, labels=labels, sources=sources, effects=effects, tools=tools,
        calls=head.calls + 1,
    )  # fmt: skip


class _ResultPart(ResultPart):
    """One result of a session: the key that its values are hashed under, and the segment that is written."""

    __slots__ = ("_key", "_named", "_parts", "_salt")

    def __init__(self, parts: Parts, key: str, salt: bytes, named: bool):
        self._parts = parts
        self._key = key
        self._salt = salt
        self._named = named

    def shows(self) -> Mapping[str, Any]:
        return {"memory": self._salt}

    def look(self, transaction: Transaction, record: ResultRecord) -> Callable[[Transaction], None] | None:
        document = transaction.document(COLLECTION, self._key)
        if document is None:
            head = MemoryHead(key=self._salt)
        else:
            head = read_head(self._parts, document)
            if head.key != self._salt:
                raise StoreConflict("the session began to remember meanwhile")
        asked = record.asked
        flow = asked.policy.flow(asked.server, asked.tool).result
        sensitivity = _sensitivity(record.evaluation) or flow.sensitivity or asked.policy.dataflow.unclassified
        # A stream was not read here, nor was what nobody may see any more: anything may have stood in it.
        reading = record.evaluation.reading or ResultReading(saturated=True, text=True)
        read = ReadDocument(
            receipt=record.receipt_id,
            tool=source_of(asked.server, asked.tool),
            trust=flow.trust or "mixed",
            sensitivity=sensitivity,
            named=self._named,
        )

        def write(transaction: Transaction) -> None:
            put_read(self._parts, transaction, self._key, head, document, read, reading)

        return write


def _sensitivity(evaluation: ResultEvaluation) -> str | None:
    """What detection says of a result; the higher of what it found."""
    found = {finding.category for finding in evaluation.combined.findings}
    return "restricted" if "secret" in found else "confidential" if "pii" in found else None


def put_read(
    parts: Parts,
    transaction: Transaction,
    key: str,
    head: MemoryHead,
    document: Document | None,
    read: ReadDocument,
    reading: ResultReading,
) -> None:
    """Write one more thing that a session read: its segment, and the head with it."""
    head = msgspec.structs.replace(
        head,
        reads=head.reads + 1,
        labels=head.labels if read.sensitivity in head.labels else tuple(sorted({*head.labels, read.sensitivity})),
        untrusted=head.untrusted or reading.text or read.trust == "untrusted",
        saturated=head.saturated or reading.saturated or head.segments >= MAX_DOCUMENTS,
        sources=head.sources if read.tool in head.sources else _with(head.sources, read.tool),
    )
    if head.segments < MAX_DOCUMENTS:
        body = seal(parts, _encode((read, reading)))
        transaction.put_document(Document(collection=SEGMENTS, key=f"{key}#{head.segments}", version=1, body=body))
        head = msgspec.structs.replace(head, segments=head.segments + 1)
    put_head(parts, transaction, key, head, 0 if document is None else document.version)


def note_said(parts: Parts, transaction: Transaction, key: str, receipt_id: str, said: UserTurn) -> None:
    """Remember that a turn was said, and read what was pasted with it."""
    document = transaction.document(COLLECTION, key)
    head = MemoryHead(key=os.urandom(_KEY_BYTES)) if document is None else read_head(parts, document)
    head = msgspec.structs.replace(head, turns=head.turns + 1, reads=head.reads + 1)
    put_head(parts, transaction, key, head, 0 if document is None else document.version)
    for text in said.documents:
        document = transaction.document(COLLECTION, key)
        read = ReadDocument(receipt=receipt_id, tool=SAID, trust="untrusted", sensitivity="internal", named=True)
        reading = read_result(text, head.key, NOTHING, "untrusted")
        if document is not None:
            put_read(parts, transaction, key, read_head(parts, document), document, read, reading)


def note_grant(parts: Parts, transaction: Transaction, grant: Grant) -> None:
    """Let a session know what a person granted for the rest of it."""
    key = key_of_session(grant.principal, grant.session)
    document = transaction.document(COLLECTION, key)
    if document is None:
        return
    head = read_head(parts, document)
    told = tuple(
        FlowGrant(id=grant.id, document=one.document, sink=one.sink, kind=one.kind, does=one.does) for one in grant.flow
    )
    head = msgspec.structs.replace(head, grants=(*head.grants, *told)[-MAX_GRANTS:], reads=head.reads + 1)
    put_head(parts, transaction, key, head, document.version)


def note_child(parts: Parts, transaction: Transaction, key: str, parent: str) -> None:
    """Let a session that begins know what its parent had read, under the key that both share."""
    above = transaction.document(COLLECTION, parent)
    if above is None:
        return
    head = read_head(parts, above)
    own = MemoryHead(
        key=head.key, reads=1, labels=head.labels, untrusted=head.untrusted, saturated=head.saturated,
        sources=head.sources, turns=head.turns, parent=parent, inherited=head.segments,
    )  # fmt: skip
    put_head(parts, transaction, key, own, 0)


def words_of(parts: Parts, reader: Reader, key: str, depth: int) -> list[str]:
    """The trusted words of a session: its turns, or its parent's; its own task is then the parent agent's word."""
    book = load_turns(reader, key)
    texts: list[str] = []
    for _, receipt in book.turns:
        entry = reader.entry_by_id(receipt)
        payload = None if entry is None else load_payload(parts, reader, entry)[0]
        if payload is None:
            continue
        above = payload.get("parent")
        if above is None:
            texts.append(said_in(payload))
    head = reader.document(COLLECTION, key)
    parent = "" if head is None else read_head(parts, head).parent
    if parent and depth < MAX_DEEP:
        texts = [*words_of(parts, reader, parent, depth + 1), *texts]
    return texts


def read_head(parts: Parts, document: Document) -> MemoryHead:
    """The head that a document holds."""
    return _decode_head(unseal(parts, document.body))


def put_head(parts: Parts, transaction: Transaction, key: str, head: MemoryHead, version: int) -> None:
    """Write the head of a session after `version`."""
    body = seal(parts, _encode(head))
    transaction.put_document(Document(collection=COLLECTION, key=key, version=version + 1, body=body))


def read_segment(parts: Parts, reader: Reader, key: str, number: int) -> tuple[ReadDocument, ResultReading] | None:
    """One thing that a session read."""
    document = reader.document(SEGMENTS, f"{key}#{number}")
    return None if document is None else _decode_segment(unseal(parts, document.body))


def seal(parts: Parts, data: bytes) -> bytes:
    """`data` encrypted under a key of its own."""
    wrapped, sealed = parts.keys.seal(data)
    return bytes([len(wrapped)]) + wrapped + sealed


def unseal(parts: Parts, body: bytes) -> bytes:
    """What `seal` made."""
    return parts.keys.open_payload(body[1 : 1 + body[0]], body[1 + body[0] :])


def source_of(server: str | None, tool: str) -> str:
    """The name of a source: `tool` or `server/tool`."""
    return (tool if server is None else f"{server}/{tool}")[: 2 * MAX_NAME_CHARS]


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if len(names) >= MAX_SOURCES else tuple(sorted({*names, name}))
