"""What the user says in a session, turn by turn: the words that are trusted, on the host's own credential.

(1) a turn is text of at most 64 KiB; pasted documents come beside it, and are never words
(2) a session that is not open is opened by it; the task of an opening is turn 1
(3) the same turn with the same text is found, another text under its number is refused
(4) it is recorded with a receipt, its text encrypted beside the log

A document of the session names its turns with their receipts; texts stand in the payloads alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

import msgspec
import orjson
from msgspec import Struct

from aegis.context.sessions import find_session, opening, session_key
from aegis.core.call import check_name
from aegis.core.canonical import SALT_BYTES, payload_commitment
from aegis.core.decision import ReceiptRef, SaidTurn
from aegis.core.ports import Document, Entry, Reader, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft, Recorded
from aegis.errors import InvalidCall, StoreConflict, StoreUnavailable
from aegis.gate.control import check_runs
from aegis.gate.events import new_id
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload
from aegis.log.writer import Unit

COLLECTION: Final = "session-turns"
MAX_TURN_BYTES: Final = 65_536  # of one turn's text, UTF-8: it is read again for every call that acts
MAX_DOCUMENT_BYTES: Final = 1_048_576  # of all documents that come with one turn
MAX_DOCUMENTS: Final = 256  # that come with one turn
MAX_TURNS: Final = 1_024  # of one session: bounds the document that names them
_ATTEMPTS: Final = 4
MAX_NUMBER: Final = 2**52  # of a turn: there is room for those that follow it

Note = Callable[[Transaction, str, str, "UserTurn"], None]
TurnSteps = Generator[Unit, tuple[Recorded, ...], SaidTurn]


class UserTurn(Struct, frozen=True, kw_only=True):
    """One turn as the host brings it; without a number it is the next. `documents` are what the user pasted."""

    text: str
    turn: int | None = None
    documents: tuple[str, ...] = ()


class TurnBook(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of one session: number and receipt of each, in the order in which they were said."""

    turns: tuple[tuple[int, str], ...] = ()
    version: int = 0

    def receipt_of(self, number: int) -> str | None:
        """The receipt of a turn."""
        return next((receipt for known, receipt in self.turns if known == number), None)

    @property
    def following(self) -> int:
        """The number of the next turn."""
        return max((number for number, _ in self.turns), default=0) + 1


def load_turns(reader: Reader, key: str) -> TurnBook:
    """The turns of the session of that key."""
    document = reader.document(COLLECTION, key)
    if document is None:
        return TurnBook()
    return TurnBook(turns=_read(document.body), version=document.version)


def with_task(unit: Unit, key: str, task: str, note: Note) -> Unit:
    """`unit`, which opens a session with a task, so that the task is its first turn."""
    receipt_id, first = unit.drafts[0].members["receipt_id"], unit.apply

    def apply(transaction: Transaction) -> Sequence[Draft]:
        drafts = () if first is None else first(transaction)
        put_turns(transaction, key, load_turns(transaction, key), 1, receipt_id)
        note(transaction, key, receipt_id, UserTurn(text=task))
        return drafts

    return msgspec.structs.replace(unit, apply=apply)


def put_turns(transaction: Transaction, key: str, book: TurnBook, number: int, receipt_id: str) -> None:
    """Write `book` with one more turn."""
    body = msgspec.json.encode((*book.turns, (number, receipt_id)))
    transaction.put_document(Document(collection=COLLECTION, key=key, version=book.version + 1, body=body))


def check_said(said: UserTurn) -> None:
    """Guarantee that a turn is within its bounds; raises `InvalidCall` (413, 422)."""
    if not isinstance(said.text, str) or not all(isinstance(one, str) for one in said.documents):
        raise InvalidCall("`text` and `documents` must be text")
    if said.turn is not None and (type(said.turn) is not int or not 1 <= said.turn <= MAX_NUMBER):
        raise InvalidCall("`turn` must be a whole number, one or more")
    if len(said.documents) > MAX_DOCUMENTS:
        raise InvalidCall(f"a turn has at most {MAX_DOCUMENTS} documents")
    if _size(said.text) > MAX_TURN_BYTES:
        raise InvalidCall(
            f"a turn has at most {MAX_TURN_BYTES} bytes of text",
            code="too_large",
            hint="send pasted text as `documents`",
            status=413,
        )
    if sum(map(_size, said.documents)) > MAX_DOCUMENT_BYTES:
        raise InvalidCall(
            f"the documents of a turn have at most {MAX_DOCUMENT_BYTES} bytes", code="too_large", status=413
        )


def turn_steps(parts: Parts, principal: Principal, session: str, said: UserTurn, note: Note) -> TurnSteps:
    """The steps that record what the user said; `note` is told of it in the recording transaction.

    Raises `InvalidCall` where it is not recorded.
    """
    check_name("session", session)
    check_said(said)  # (1)
    for _ in range(_ATTEMPTS):
        with parts.store.reader() as reader:
            check_runs(reader, principal)
            opened = find_session(parts, reader, principal, session)
            book = load_turns(reader, session_key(principal, session))
            known = None if said.turn is None else book.receipt_of(said.turn)
            entry = None if known is None else reader.entry_by_id(known)
            if entry is not None and said.turn is not None:
                return _again(parts, reader, entry, session, said)  # (3)
        number = book.following if said.turn is None else said.turn
        if len(book.turns) >= MAX_TURNS:
            raise InvalidCall(f"a session has at most {MAX_TURNS} turns", code="too_many", status=409)
        begun: list[Draft] = []
        first: Unit | None = None
        if opened is None:  # (2)
            first = opening(
                principal, session, said.text if number == 1 else "", documents=said.documents, longest=MAX_TURN_BYTES
            )
            begun.extend(first.drafts)
            opening_id = first.drafts[0].members["receipt_id"]
        else:
            opening_id = opened.receipt_id
        if opened is not None or number != 1:
            begun.append(_draft(principal, session, said, number, opening_id))
        try:
            recorded = yield _unit(principal, session, said, number, book, first, begun, note)  # (4)
        except StoreConflict:  # opened, or another turn was said meanwhile
            continue
        return SaidTurn(session=session, turn=number, receipt=_place(recorded[len(begun) - 1]), fresh=True)
    raise StoreUnavailable("the turn could not be recorded")


def _unit(
    principal: Principal,
    session: str,
    said: UserTurn,
    number: int,
    book: TurnBook,
    first: Unit | None,
    drafts: Sequence[Draft],
    note: Note,
) -> Unit:
    key = session_key(principal, session)
    receipt_id: str = drafts[-1].members["receipt_id"]

    def apply(transaction: Transaction) -> Sequence[Draft]:
        check_runs(transaction, principal)
        if first is not None and first.apply is not None:
            first.apply(transaction)
        known = load_turns(transaction, key)
        if first is None and known.version != book.version:
            raise StoreConflict("another turn was said meanwhile")
        put_turns(transaction, key, known, number, receipt_id)
        note(transaction, key, receipt_id, said)
        return ()

    return Unit(drafts=tuple(drafts), apply=apply)


def _draft(principal: Principal, session: str, said: UserTurn, number: int, opening_id: str) -> Draft:
    value: dict[str, Any] = {"turn": number, "text": said.text}
    if said.documents:
        value["documents"] = list(said.documents)
    salt, payload = os.urandom(SALT_BYTES), orjson.dumps(value)
    members: dict[str, Any] = {
        "kind": "session",
        "receipt_id": new_id(),
        "parent": opening_id,
        "principal": principal.id,
        "session": session,
        "action": "turn",
        "payload_commitment": payload_commitment(salt, payload),
    }
    if principal.agent is not None:
        members["agent"] = principal.agent
    return Draft(members=members, payload=payload, salt=salt)


def _again(parts: Parts, reader: Reader, entry: Entry, session: str, said: UserTurn) -> SaidTurn:
    """The turn that was said under this number, where it is the same."""
    payload, _ = load_payload(parts, reader, entry)
    if payload is None or said_in(payload) != said.text:
        raise InvalidCall(
            f"turn {said.turn} of this session has another text",
            code="conflict",
            hint="use the next number",
            status=409,
        )
    place = ReceiptRef(id=entry.receipt_id, index=entry.index, leaf_hash=entry.leaf_hash.hex())
    return SaidTurn(session=session, turn=said.turn or 1, receipt=place, fresh=False)


def said_in(payload: dict[str, Any]) -> str:
    """The words in the payload of a turn, or of the opening whose task is one."""
    text: str = payload["text"] if "text" in payload else payload["task"]
    return text


def _place(recorded: Recorded) -> ReceiptRef:
    return ReceiptRef(id=recorded.receipt_id, index=recorded.index, leaf_hash=recorded.leaf_hash.hex())


def _size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidCall("text must not hold lone surrogates") from error


_read: Final = msgspec.json.Decoder(tuple[tuple[int, str], ...]).decode
