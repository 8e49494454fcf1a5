"""What a session remembers of what was said, read and done: written with receipts, shared through the store.

A head document holds counts, labels and sources, as receipts do; each result is one segment beside it, encrypted, and
never written again. A process keeps sessions folded and takes in what others added: a call costs the same however long
its session is. Values stand in segments as keyed hashes; the key stands in the encrypted part of the head, which calls
carry on as it is. What was read can be worked out again from receipts and payloads, and every document stands under the
seal of the store.

Caps of a session are those of `policy.dataflow.reading`; a process keeps at most `MAX_KEPT` sessions.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from aegis.approvals.grants import stands
from aegis.context.heads import (
    COLLECTION,
    KEY_BYTES,
    MAX_DEEP,
    BroughtBack,
    MemoryHead,
    MemorySecret,
    drift_alarm,
    fresh_head,
    open_secret,
    put_head,
    put_read,
    read_head,
    read_segment,
    sealed_secret,
    source_of,
    take_children,
    with_name,
    words_of,
)
from aegis.context.sessions import session_key
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Reader, Transaction
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
    refuse,
)
from aegis.gate.parts import Parts
from aegis.gate.repeat import arguments_of
from aegis.policy.dataflow.drift import stray_of
from aegis.policy.dataflow.licence import FlowCall
from aegis.policy.dataflow.named import is_named, is_reached
from aegis.policy.dataflow.reading import (
    ReadDocument,
    ResultReading,
    SessionView,
)
from aegis.policy.dataflow.words import read_words
from aegis.policy.model import Evaluation, ResultEvaluation
from aegis.policy.session import COUNTED, receipt_context

MAX_KEPT: Final = 2_048  # sessions that one process keeps folded: the oldest are read again from the store


class _Kept:
    """One session folded: its view, how far it was read, and the secret that it was read with."""

    __slots__ = ("below", "secret", "segments", "taken", "turns", "version", "view")

    def __init__(self, view: SessionView):
        self.view = view
        self.secret = b""
        self.taken = 0
        self.below: dict[str, int] = {}
        self.version = 0
        self.segments = 0
        self.turns = -1


class SessionMemory(Participant):
    """Shows guards what a session said and read, and remembers what its calls do and give back."""

    def __init__(self, parts: Parts):
        self._parts = parts
        self._lock = threading.RLock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def view(self, asked: DecisionAttempt) -> Part | Evaluation | None:
        subject = asked.subject
        if not subject.session or subject.worker is not None:
            return None
        key = session_key(subject.principal, subject.session)
        with self._parts.store.reader() as reader:
            if not asked.policy.dataflow.remembers:
                document = reader.document(COLLECTION, key)
                return _refused() if document is not None and read_head(document).ended else None
            view = self.load(reader, key)
            if view is not None and view.ended:
                return _refused()
            if view is not None and view.grants:
                now = self._parts.clock()
                view.grants = tuple(one for one in view.grants if stands(reader, one.id, now))
        view = view or SessionView(id=subject.session)
        view.hands_off = subject.call.handoff
        return MemoryPart(self._parts, key, view)

    def result(self, asked: ResultAttempt) -> ResultPart | None:
        if not asked.session or not asked.policy.dataflow.remembers:
            return None
        key = session_key(asked.principal, asked.session)
        with self._parts.store.reader() as reader:
            view, secret = self._load(reader, key)
            entry = None if view is None or view.words is None else reader.entry_by_id(asked.decision_id)
        arguments = {} if entry is None else arguments_of(self._parts, entry)
        named = view is not None and (is_named(view.words, asked.tool, arguments) or is_reached(view, arguments))
        if view is None:
            salt = os.urandom(KEY_BYTES)
            return _ResultPart(self._parts, key, salt, sealed_secret(self._parts, MemorySecret(key=salt)), named, view)
        return _ResultPart(self._parts, key, view.key, secret, named, view)

    def load(self, reader: Reader, key: str) -> SessionView | None:
        """What a session knows now; `None` where it remembers nothing yet."""
        return self._load(reader, key)[0]

    def _load(self, reader: Reader, key: str) -> tuple[SessionView | None, bytes]:
        document = reader.document(COLLECTION, key)
        if document is None:
            return None, b""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                kept = self._kept[key] = _Kept(SessionView(id=orjson.loads(key)[1]))
                if len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(key)
            if kept.version != document.version:
                self._fold(reader, key, kept, read_head(document))
                kept.version = document.version
            return kept.view.of_now(), kept.secret

    def _fold(self, reader: Reader, key: str, kept: _Kept, head: MemoryHead) -> None:
        view = kept.view
        if kept.secret != head.secret:
            secret = open_secret(self._parts, head)
            view.key, view.grants, kept.secret = secret.key, secret.grants, head.secret
        if kept.segments == 0 and head.parent:
            self._inherit(reader, view, head, 0)
        self._read_all(reader, key, view, kept, head.segments, head.taken[kept.taken :])
        kept.taken = len(head.taken)
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
        view.acting, view.strays, view.measured = head.acting, head.strays, head.measured_of()
        view.reads, view.ended = head.reads, bool(head.ended)
        view.owner, view.plan = head.owner, head.plan

    def _inherit(self, reader: Reader, view: SessionView, head: MemoryHead, depth: int) -> None:
        """Take in what the parent had read: under the key that both share."""
        document = reader.document(COLLECTION, head.parent)
        if document is None or depth >= MAX_DEEP:
            view.saturated = True
            return
        above = read_head(document)
        if above.parent:
            self._inherit(reader, view, above, depth + 1)
        taken = above.taken[: head.inherited_taken]
        self._read_all(reader, head.parent, view, _Kept(view), head.inherited, taken)

    def _read_all(
        self, reader: Reader, key: str, view: SessionView, kept: _Kept, segments: int, taken: Sequence[BroughtBack]
    ) -> None:
        """Take in what a session read and what came back to it, in the order in which it came."""
        for one in taken:
            self._read(reader, key, view, kept.segments, one.after)
            self._read(reader, one.session, view, kept.below.get(one.session, 0), one.segments)
            kept.segments, kept.below[one.session] = max(kept.segments, one.after), one.segments
        self._read(reader, key, view, kept.segments, segments)
        kept.segments = segments

    def _read(self, reader: Reader, key: str, view: SessionView, start: int, stop: int) -> None:
        """Take in what one session read, from one segment on to another."""
        for number in range(start, stop):
            segment = read_segment(self._parts, reader, key, number)
            if segment is None:  # it was erased: what it held may be anywhere
                view.saturated = True
            else:
                view.add(*segment)


class MemoryPart(Part):
    """One call of a session: what guards are shown of it, and what recording its decision counts."""

    __slots__ = ("_key", "_parts", "_view")

    def __init__(self, parts: Parts, key: str, view: SessionView):
        self._parts = parts
        self._key = key
        self._view = view

    @property
    def shown(self) -> SessionView:
        """What guards are shown of the session."""
        return self._view

    def shows(self) -> Mapping[str, Any]:
        return {"context": self._view}

    def members(self, evaluation: Evaluation) -> Mapping[str, Any]:
        return _members(self._view)

    def look(self, transaction: Transaction, record: DecisionRecord, *, last: bool) -> Write | None:
        """Count the call; where it runs, nothing that its verdict depends on may have moved since."""
        document = transaction.document(COLLECTION, self._key)
        head = fresh_head(self._parts) if document is None else read_head(document)
        if record.runs and head.reads != self._view.reads:
            raise StoreConflict("the session read or said something meanwhile")
        if record.runs and _counts(head, self._view, record.asked.policy.dataflow.reads):
            raise StoreConflict("another call of the session was decided meanwhile")
        evaluation = record.evaluation
        if record.runs:
            head = _ran(head, record.asked, evaluation)
        elif evaluation.combined.outcome is Outcome.BLOCK:
            head = msgspec.structs.replace(head, denials=head.denials + 1)
        followed, alarms = self._followed(head, record)
        if followed is head and document is not None and not record.runs and not _is_block(evaluation):
            return None

        def write(transaction: Transaction) -> Sequence[Draft]:
            put_head(transaction, self._key, followed, 0 if document is None else document.version)
            return alarms

        return write

    def _followed(self, head: MemoryHead, record: DecisionRecord) -> tuple[MemoryHead, tuple[Draft, ...]]:
        """The head with the drift of this call, and the alarm where the session comes to a threshold with it."""
        rules, subject = record.asked.policy.dataflow, record.asked.subject
        if not rules.follows or self._view.words is None:
            return head, ()
        stray = self._view.stray  # what a worker made of the call is not known here
        if stray is None:
            flow = record.asked.policy.flow(subject.call.server, subject.call.tool)
            leaves = "external_send" in record.evaluation.effects
            arguments = record.evaluation.arguments
            hands_off = self._view.hands_off
            call = FlowCall(tool=subject.call.tool, arguments=arguments, flow=flow, leaves=leaves, hands_off=hands_off)
            stray = stray_of(call, self._view)
        if stray is None or not (stray.acts or stray.drift > head.drift):
            return head, ()
        followed = msgspec.structs.replace(
            head,
            drift=max(head.drift, stray.drift),
            acting=head.acting + stray.acts,
            strays=head.strays + stray.strays,
        )
        if not rules.alarms(head.drift, followed.drift):
            return followed, ()
        of_call = {"agent": subject.agent, "tool": subject.call.tool}
        return followed, (drift_alarm(record.decision_id, subject.principal.id, subject.session, of_call),)


def _refused() -> Evaluation:
    """The refusal of a call in a session that has ended."""
    return msgspec.structs.replace(refuse("session", Reason.REVOKED), message="this session has ended")


def _is_block(evaluation: Evaluation) -> bool:
    return evaluation.combined.outcome is Outcome.BLOCK


def _members(view: SessionView) -> Mapping[str, Any]:
    """What receipts of a session say of it: as it was when the call or the result was judged."""
    context = {"context": receipt_context(view)}
    return {"owner": view.owner, **context} if view.owner else context


def _counts(head: MemoryHead, view: SessionView, reads: frozenset[str]) -> bool:
    """Whether what policies read of earlier calls has moved since."""
    if reads.isdisjoint(COUNTED):
        return False
    now = {
        "calls": head.calls, "denials": head.denials, "drift": head.drift, "effects": set(head.effects),
        "tools": set(head.tools),
    }  # fmt: skip
    return any(now[name] != getattr(view, name) for name in COUNTED & reads)


def _ran(head: MemoryHead, asked: DecisionAttempt, evaluation: Evaluation) -> MemoryHead:
    """The head after a call that runs: it counts at once, with what is declared of its tool."""
    call = asked.subject.call
    flow = asked.policy.flow(call.server, call.tool).result
    name = source_of(call.server, call.tool)
    reads = head.reads
    untrusted = head.untrusted or flow.trust == "untrusted" or "untrusted" in flow.fields.values()
    labels = head.labels
    if flow.sensitivity is not None and flow.sensitivity not in labels:
        labels = tuple(sorted({*labels, flow.sensitivity}))
    sources = head.sources
    if (flow.trust is not None or flow.sensitivity is not None) and name not in sources:
        sources = with_name(sources, name)
    if untrusted != head.untrusted or labels != head.labels or sources != head.sources:
        reads += 1
    effects = head.effects
    if not evaluation.effects <= frozenset(effects):
        effects = tuple(sorted({*effects, *evaluation.effects}))
    tools = head.tools if name in head.tools else with_name(head.tools, name)
    return msgspec.structs.replace(
        head, reads=reads, untrusted=untrusted, labels=labels, sources=sources, effects=effects, tools=tools,
        calls=head.calls + 1,
    )  # fmt: skip


class _ResultPart(ResultPart):
    """One result of a session: the key that its values are hashed under, and the segment that is written."""

    __slots__ = ("_key", "_named", "_parts", "_salt", "_secret", "_view")

    def __init__(self, parts: Parts, key: str, salt: bytes, secret: bytes, named: bool, view: SessionView | None):
        self._view = view
        self._parts = parts
        self._key = key
        self._salt = salt
        self._secret = secret
        self._named = named

    def shows(self) -> Mapping[str, Any]:
        return {"memory": self._salt}

    def members(self, evaluation: ResultEvaluation) -> Mapping[str, Any]:
        return {} if self._view is None else _members(self._view)

    def look(self, transaction: Transaction, record: ResultRecord) -> Callable[[Transaction], None] | None:
        document = transaction.document(COLLECTION, self._key)
        if document is None:
            head = MemoryHead(secret=self._secret)
        else:
            head = read_head(document)
            if head.secret != self._secret:
                raise StoreConflict("the session began to remember meanwhile")
        asked = record.asked
        head = take_children(transaction, self._key, asked.body["call_id"], head)
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
