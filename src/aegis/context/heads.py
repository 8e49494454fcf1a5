"""The documents of a session's memory: a head of counts, labels and sources, and a segment for each thing read.

What stands in them is said in `context.memory`, which folds them; here they are read and written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec
import orjson

from aegis.approvals.grants import Grant
from aegis.context.sessions import key_of_session
from aegis.context.turns import UserTurn, load_turns, said_in
from aegis.core.call import MAX_NAME_CHARS
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall
from aegis.gate.events import new_id
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload
from aegis.policy.dataflow.declare import NOTHING
from aegis.policy.dataflow.reading import MAX_DOCUMENTS, FlowGrant, ReadDocument, ResultReading, read_result

COLLECTION: Final = "session-memory"
SEGMENTS: Final = "session-reads"
MAX_SOURCES: Final = 512  # names of tools; a flood of made-up ones is not kept
MAX_DEEP: Final = 16  # parents of parents that are followed
MAX_GRANTS: Final = 256  # of one session: the oldest are asked for again
CHILDREN: Final = "session-children"
MAX_TAKEN: Final = 256  # that came back from sessions below: beyond it where values stand is not known any more
MAX_CHILDREN: Final = 64  # sessions below one call, or below a session without naming a call
SAID: Final = "aegis:session/turn"  # the source of what a user pasted
KEY_BYTES: Final = 16


class MemorySecret(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a head stands encrypted: the key of its hashes, and what people granted."""

    key: bytes
    grants: tuple[FlowGrant, ...] = ()


class BroughtBack(msgspec.Struct, frozen=True, array_like=True):
    """What came back from a session below: as many of its segments, after as many of one's own."""

    session: str
    segments: int
    after: int


class MemoryHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The head document of a session; `secret` is its `MemorySecret`, encrypted."""

    secret: bytes
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
    acting: int = 0
    strays: int = 0
    parent: str = ""
    inherited: int = 0  # segments of the parent that it had read when this session began
    owner: str = ""
    inherited_taken: int = 0  # of what had come back to the parent then
    taken: tuple[BroughtBack, ...] = ()
    measured: tuple[tuple[str, int], ...] = ()  # how far what tools are called is from what was said until then
    measured_by: str = ""  # the model that said so
    measured_turns: int = 0
    ended: str = ""  # the receipt of its end

    def measured_of(self, model: str = "") -> dict[str, int]:
        """The distances that one model told, or any, of all that the user said; none where he said more since."""
        is_current = self.measured_turns == self.turns and model in {"", self.measured_by}
        return dict(self.measured) if is_current else {}

    plan: str = ""  # the session whose declared plan binds this one


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_head: Final = msgspec.msgpack.Decoder(MemoryHead).decode
_decode_secret: Final = msgspec.msgpack.Decoder(MemorySecret).decode
_decode_segment: Final = msgspec.msgpack.Decoder(tuple[ReadDocument, ResultReading]).decode


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
        sources=head.sources if read.tool in head.sources else with_name(head.sources, read.tool),
    )
    if head.segments < MAX_DOCUMENTS:
        body = seal(parts, _encode((read, reading)))
        transaction.put_document(Document(collection=SEGMENTS, key=f"{key}#{head.segments}", version=1, body=body))
        head = msgspec.structs.replace(head, segments=head.segments + 1)
    put_head(transaction, key, head, 0 if document is None else document.version)


def note_said(parts: Parts, transaction: Transaction, key: str, receipt_id: str, said: UserTurn) -> None:
    """Remember that a turn was said, and read what was pasted with it."""
    document = transaction.document(COLLECTION, key)
    head = fresh_head(parts) if document is None else read_head(document)
    check_goes_on(head)
    head = msgspec.structs.replace(head, turns=head.turns + 1, reads=head.reads + 1)
    put_head(transaction, key, head, 0 if document is None else document.version)
    key_of_values = open_secret(parts, head).key if said.documents else b""
    for text in said.documents:
        document = transaction.document(COLLECTION, key)
        read = ReadDocument(receipt=receipt_id, tool=SAID, trust="untrusted", sensitivity="internal", named=True)
        reading = read_result(text, key_of_values, NOTHING, "untrusted")
        if document is not None:
            put_read(parts, transaction, key, read_head(document), document, read, reading)


def note_grant(parts: Parts, transaction: Transaction, grant: Grant) -> None:
    """Let a session know what a person granted for the rest of it."""
    key = key_of_session(grant.principal, grant.session)
    document = transaction.document(COLLECTION, key)
    if document is None:
        return
    head = read_head(document)
    told = tuple(
        FlowGrant(
            id=grant.id,
            document=one.document,
            place=one.place,
            sink=one.sink,
            kind=one.kind,
            does=one.does,
            tool=one.tool,
        )
        for one in grant.flow
    )
    secret = open_secret(parts, head)
    secret = msgspec.structs.replace(secret, grants=(*secret.grants, *told)[-MAX_GRANTS:])
    head = msgspec.structs.replace(head, secret=sealed_secret(parts, secret), reads=head.reads + 1)
    put_head(transaction, key, head, document.version)


def note_child(parts: Parts, transaction: Transaction, key: str, parent: str, call_id: str | None) -> None:
    """Let a session that begins know what its parent had read, under the key that both share.

    What it reads itself comes back with the result of the call that it was opened from.
    """
    above = transaction.document(COLLECTION, parent)
    head = fresh_head(parts) if above is None else read_head(above)
    check_goes_on(head)
    if above is None:
        put_head(transaction, parent, head, 0)
    place = _children_of(parent, call_id)
    known = transaction.document(CHILDREN, place)
    names = [] if known is None else orjson.loads(known.body)
    if len(names) < MAX_CHILDREN:
        version = 1 if known is None else known.version + 1
        body = orjson.dumps([*names, key])
        transaction.put_document(Document(collection=CHILDREN, key=place, version=version, body=body))
    else:  # what it reads is not followed back
        again = transaction.document(COLLECTION, parent)
        full = msgspec.structs.replace(head, saturated=True, reads=head.reads + 1)
        put_head(transaction, parent, full, 0 if again is None else again.version)
    own = MemoryHead(
        secret=sealed_secret(parts, MemorySecret(key=open_secret(parts, head).key)),
        reads=1, labels=head.labels, untrusted=head.untrusted, saturated=head.saturated,
        sources=head.sources, turns=head.turns, parent=parent, inherited=head.segments,
        inherited_taken=len(head.taken), owner=head.owner, plan=head.plan,
    )  # fmt: skip
    put_head(transaction, key, own, 0)


def note_owner(parts: Parts, transaction: Transaction, key: str, owner: str) -> None:
    """Remember for whom a session runs."""
    document = transaction.document(COLLECTION, key)
    head = fresh_head(parts) if document is None else read_head(document)
    put_head(transaction, key, msgspec.structs.replace(head, owner=owner), 0 if document is None else document.version)


def take_children(reader: Reader, key: str, call_id: str, head: MemoryHead) -> MemoryHead:
    """The head of a session to which a result comes back, with what the sessions below that call had read."""
    for place in (_children_of(key, call_id), _children_of(key, None)):
        document = reader.document(CHILDREN, place)
        for child in [] if document is None else orjson.loads(document.body):
            below = reader.document(COLLECTION, child)
            if below is not None:
                head = _with_child(head, child, read_head(below))
    return head


def _with_child(head: MemoryHead, child: str, below: MemoryHead) -> MemoryHead:
    sources = head.sources
    for name in below.sources:
        sources = sources if name in sources else with_name(sources, name)
    taken = head.taken
    for session, segments in (*((one.session, one.segments) for one in below.taken), (child, below.segments)):
        if segments > max((one.segments for one in taken if one.session == session), default=0):
            taken = (*taken, BroughtBack(session, segments, head.segments))
    return msgspec.structs.replace(
        head, labels=tuple(sorted({*head.labels, *below.labels})), untrusted=head.untrusted or below.untrusted,
        saturated=head.saturated or below.saturated or len(taken) > MAX_TAKEN,
        sources=sources, taken=taken[:MAX_TAKEN],
    )  # fmt: skip


def _children_of(parent: str, call_id: str | None) -> str:
    return f"{parent}#{call_id or ''}"


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
    parent = "" if head is None else read_head(head).parent
    if parent and depth < MAX_DEEP:
        texts = [*words_of(parts, reader, parent, depth + 1), *texts]
    return texts


def fresh_head(parts: Parts) -> MemoryHead:
    """The head of a session that begins to remember."""
    return MemoryHead(secret=sealed_secret(parts, MemorySecret(key=os.urandom(KEY_BYTES))))


def read_head(document: Document) -> MemoryHead:
    """The head that a document holds."""
    return _decode_head(document.body)


def put_head(transaction: Transaction, key: str, head: MemoryHead, version: int) -> None:
    """Write the head of a session after `version`."""
    transaction.put_document(Document(collection=COLLECTION, key=key, version=version + 1, body=_encode(head)))


def sealed_secret(parts: Parts, secret: MemorySecret) -> bytes:
    """`secret` encrypted."""
    return seal(parts, _encode(secret))


def open_secret(parts: Parts, head: MemoryHead) -> MemorySecret:
    """The secret of a head."""
    return _decode_secret(unseal(parts, head.secret))


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


def check_goes_on(head: MemoryHead) -> None:
    """Guarantee that a session has not ended; raises `InvalidCall` (409)."""
    if head.ended:
        raise InvalidCall("this session has ended", code="session_ended", hint="open one with another name", status=409)


def drift_alarm(parent: str, principal: str, session: str, call: Mapping[str, str] | None) -> Draft:
    """The alarm that a session went far from its user's words, chained to what showed it; `call` is agent and tool."""
    members = {
        "kind": "alarm",
        "receipt_id": new_id(),
        "parent": parent,
        "principal": principal,
        "session": session,
        "action": "drift",
        **(call or {}),
    }
    return Draft(members=members)


def source_of(server: str | None, tool: str) -> str:
    """The name of a source: `tool` or `server/tool`."""
    return (tool if server is None else f"{server}/{tool}")[: 2 * MAX_NAME_CHARS]


def with_name(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """`names` with one more, in order, unless there are as many as are kept."""
    return names if len(names) >= MAX_SOURCES else tuple(sorted({*names, name}))
