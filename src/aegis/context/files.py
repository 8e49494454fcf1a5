"""What the calls of a session wrote into files, for the calls that run one of them.

Documents of the session name the decisions that wrote files, in their order, each with a keyed hash of the last name
of every file; one of them holds so many that a call writes the same in a long session as in a short one. What was
written stands in the payloads of those decisions alone, encrypted and erasable as ever; it is worked out from them when
a file is run. The documents are sealed, and written in the transaction that records the decision; the call that runs a
file is recorded only where nothing was written to it since it was judged.

Without a session nothing is remembered.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import orjson

from aegis.context.sessions import session_key
from aegis.core.outcome import Outcome
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.detect.facts import MOST_EFFORT, Effort
from aegis.detect.files import UNKNOWN, Files, Written, last_name, normal
from aegis.detect.gather import writes
from aegis.errors import StoreConflict, StoreCorrupt
from aegis.gate.participants import DecisionAttempt, DecisionRecord, Part, Participant, Write
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.repeat import load_payload
from aegis.policy.model import Evaluation
from aegis.policy.policy import Policy

COLLECTION: Final = "session-files"
PIECE: Final = 32  # calls that one document names
PIECES: Final = 16  # documents of calls that wrote files and are looked up: what a flood of writes makes us keep
MOST_GONE: Final = 1_024  # names of older ones, of which only that they were written is known
MOST_NAMES: Final = 64  # files that one call writes: beyond them it may have written any
MOST_READ: Final = 128  # earlier calls that one run has read again: bounds the time of a decision
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 8


_Call = tuple[str, bool, list[str]]  # receipt id, whether it was held, hashes of names


@dataclass(kw_only=True, slots=True)
class _Head:
    """What is rewritten with every call that writes: how many there were, and the key of the hashes."""

    salt: bytes
    count: int = 0
    full: bool = False
    version: int = 0

    def hash(self, path: str) -> str:
        """The keyed hash of a file's last name."""
        return blake2b(last_name(normal(path)).encode(), key=self.salt, digest_size=_HASH_BYTES).hexdigest()


@dataclass(kw_only=True, slots=True)
class _Memory(_Head):
    """All that a session remembers of the files that it wrote."""

    calls: list[_Call]
    gone: list[str]


def recalled(parts: Parts, subject: Subject, runs: Sequence[str], policy: Policy) -> tuple[Files | None, int]:
    """What is known of the files that a call runs, `None` where its session wrote none of them.

    With it the number of writing calls that the session had then.
    """
    with parts.store.reader() as reader:
        memory = _load(parts, reader, session_key(subject.principal, subject.session))
        if memory is None:
            return None, 0
        wanted = {memory.hash(path): path for path in runs}
        names = {name for _, _, hashes in memory.calls for name in hashes}
        if not memory.full and wanted.keys().isdisjoint(names) and wanted.keys().isdisjoint(memory.gone):
            return None, memory.count
        return _Reading(parts, reader, memory, policy).files(wanted), memory.count


class SessionFiles(Participant):
    """Tells guards what a session wrote into the files that its call runs, and remembers what the call writes."""

    def __init__(self, parts: Parts):
        self._parts = parts

    def reread(self, asked: DecisionAttempt, evaluation: Evaluation) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        files, count = recalled(self._parts, asked.subject, evaluation.runs, asked.policy)
        return {} if files is None else {"files": files}, {"recalled": count}

    def join(self, asked: DecisionAttempt, evaluation: Evaluation) -> Part | None:
        blocked = evaluation.combined.outcome is Outcome.BLOCK
        if not evaluation.runs and (blocked or not evaluation.written):
            return None
        return _FilesPart(self._parts, session_key(asked.subject.principal, asked.subject.session))


class _FilesPart(Part):
    """What recording the decision of a call writes of its files, and looks at again before."""

    __slots__ = ("_key", "_parts")

    def __init__(self, parts: Parts, key: str):
        self._parts = parts
        self._key = key

    def look(self, transaction: Transaction, record: DecisionRecord, *, last: bool) -> Write | None:
        evaluation = record.evaluation
        outcome = evaluation.combined.outcome
        found = _load(self._parts, transaction, self._key) if evaluation.runs else None
        if found is not None and found.count > evaluation.recalled:
            since = found.calls[evaluation.recalled - found.count :]
            wanted = {found.hash(path) for path in evaluation.runs}
            if any(not wanted.isdisjoint(names) for _, _, names in since):
                raise StoreConflict("a file that the call runs was written meanwhile")
        if not evaluation.written or outcome is Outcome.BLOCK:
            return None

        def write(transaction: Transaction) -> Sequence[Draft]:
            held = outcome is Outcome.REQUIRE_APPROVAL
            _add(self._parts, transaction, self._key, record.decision_id, evaluation.written, held=held)
            return ()

        return write


class _Reading:
    """Works out what files hold, from the payloads of the calls that wrote them."""

    def __init__(self, parts: Parts, reader: Reader, memory: _Memory, policy: Policy):
        self._parts = parts
        self._reader = reader
        self._memory = memory
        self._policy = policy
        self._payloads: dict[str, dict[str, Any] | None] = {}

    def files(self, wanted: dict[str, str]) -> Files:
        """What the files hold whose names are `wanted`, by their hashes; also those that they are copies of.

        (1) the calls that wrote one of them, the newest first where there are many
        (2) each again, in order, upon what the ones before it left
        (3) again with the files that were copied into these, until there are no more
        """
        while True:
            chosen = [
                number for number, (_, _, names) in enumerate(self._memory.calls) if not wanted.keys().isdisjoint(names)
            ]
            files, sources = self._fold(chosen[-MOST_READ:], wanted, cut=len(chosen) > MOST_READ)
            more = {self._memory.hash(path): path for path in sources}
            if more.keys() <= wanted.keys():
                return files
            wanted = {**more, **wanted}

    def _fold(self, chosen: Sequence[int], wanted: dict[str, str], *, cut: bool) -> tuple[Files, set[str]]:
        files, effort = Files(), Effort(2 * MOST_EFFORT)
        files.full = self._memory.full
        sources: set[str] = set()
        older = set(wanted) if cut else wanted.keys() & set(self._memory.gone)  # were written before these, too
        for number in chosen:
            receipt_id, held, names = self._memory.calls[number]
            payload = self._payload(receipt_id)
            told: tuple[Written, ...] = ()
            writer = tool = ""
            if payload is not None and effort.left >= 0:
                server, tool = payload["server"], payload["tool"]
                writer = f"{server}"
                arguments = payload.get("patched", payload["arguments"])
                told = writes(self._policy.subject(server, tool, arguments), files, effort)
            for written in told:
                # The same relative name may be another file to another tool.
                of = writer if written.path[:1] in {"/", "~"} else f"{writer}\n{tool}"
                files.write(written._replace(sure=False) if held else written, of)
                sources.update(written.flow.files)
                if written.sure and not held and not written.append and not written.replaces:
                    older.discard(self._memory.hash(written.path))
            missed = (wanted.keys() & set(names)) - {self._memory.hash(written.path) for written in told}
            for name in missed:  # erased, or too much: that it was written is all that is known
                files.write(Written(wanted[name], UNKNOWN), writer)
        for name in older:
            files.write(Written(wanted[name], UNKNOWN))
        return files, sources

    def _payload(self, receipt_id: str) -> dict[str, Any] | None:
        if receipt_id not in self._payloads:
            entry = self._reader.entry_by_id(receipt_id)
            if entry is None:
                raise StoreCorrupt("a session remembers a decision that the log does not have")
            self._payloads[receipt_id] = load_payload(self._parts, self._reader, entry)[0]
        return self._payloads[receipt_id]


def _add(
    parts: Parts, transaction: Transaction, key: str, receipt_id: str, written: Iterable[Written], *, held: bool
) -> None:
    """Remember one call: in the last piece of the calls, so that it costs the same however many there were."""
    head = _head(parts, transaction, key) or _Head(salt=os.urandom(_SALT_BYTES))
    names = list(dict.fromkeys(head.hash(one.path) for one in written))
    if len(names) > MOST_NAMES:
        names, head.full = names[:MOST_NAMES], True
    number, place = divmod(head.count, PIECE)
    if place == 0 and number >= PIECES:
        _forget(parts, transaction, key, head, number - PIECES)
    calls: list[_Call] = _read(parts, transaction, _piece(key, number), []) if place else []
    _put(parts, transaction, _piece(key, number), place + 1, [*calls, (receipt_id, held, names)])
    head.count += 1
    value = {"salt": head.salt.hex(), "count": head.count, "full": head.full}
    _put(parts, transaction, key, head.version + 1, value)


def _forget(parts: Parts, transaction: Transaction, key: str, head: _Head, number: int) -> None:
    """Let the names of the oldest piece be all that is known of its calls."""
    document = transaction.document(COLLECTION, _gone(key))
    old: list[_Call] = _read(parts, transaction, _piece(key, number), [])
    known = _read(parts, transaction, _gone(key), [])
    names = list(dict.fromkeys((*known, *(name for _, _, hashes in old for name in hashes))))
    if len(names) > MOST_GONE:
        names, head.full = names[-MOST_GONE:], True
    _put(parts, transaction, _gone(key), 1 if document is None else document.version + 1, names)
    transaction.delete_document(COLLECTION, _piece(key, number))


def _load(parts: Parts, reader: Reader, key: str) -> _Memory | None:
    head = _head(parts, reader, key)
    if head is None:
        return None
    last = (head.count - 1) // PIECE
    pieces = range(max(0, last - PIECES + 1), last + 1)
    return _Memory(
        salt=head.salt,
        count=head.count,
        full=head.full,
        version=head.version,
        calls=[(one[0], one[1], one[2]) for number in pieces for one in _read(parts, reader, _piece(key, number), [])],
        gone=_read(parts, reader, _gone(key), []),
    )


def _head(parts: Parts, reader: Reader, key: str) -> _Head | None:
    document = reader.document(COLLECTION, key)
    if document is None:
        return None
    value = _opened(parts, document)
    return _Head(salt=bytes.fromhex(value["salt"]), count=value["count"], full=value["full"], version=document.version)


def _piece(key: str, number: int) -> str:
    return f"{key}#{number}"


def _gone(key: str) -> str:
    return f"{key}#gone"


def _read(parts: Parts, reader: Reader, key: str, default: Any) -> Any:
    document = reader.document(COLLECTION, key)
    return default if document is None else _opened(parts, document)


def _opened(parts: Parts, document: Document) -> Any:
    wrapped, sealed = document.body[1 : 1 + document.body[0]], document.body[1 + document.body[0] :]
    return orjson.loads(parts.keys.open_payload(wrapped, sealed))


def _put(parts: Parts, transaction: Transaction, key: str, version: int, value: Any) -> None:
    wrapped, sealed = parts.keys.seal(orjson.dumps(value))
    body = bytes([len(wrapped)]) + wrapped + sealed
    transaction.put_document(Document(collection=COLLECTION, key=key, version=version, body=body))
