"""Finding the newest decision of a call that was seen before, on this process or another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson
from msgspec import Struct

from aegis.core.canonical import payload_commitment
from aegis.core.decision import Decision
from aegis.core.json import parse
from aegis.core.ports import Entry, Reader, Store, Transaction
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall, StoreCorrupt
from aegis.gate.events import new_id
from aegis.gate.parts import Parts
from aegis.gate.record import recall
from aegis.log.writer import Unit
from aegis.store.shared import CountBook, Counted

# Calls that other processes on the same store let through, for the windows of rates.
#
# The log is what the processes share. A process begins with the newest receipts, and is told by its own commits
# where others have written meanwhile; nothing is asked of the store as long as it is alone.

MAX_RECEIPTS: Final = 20_000  # newest receipts looked at for one span: bounds the work of a process that comes late
MAX_SPANS: Final = 1_000  # spans remembered that nobody has asked for
_PAGE: Final = 256
# Canonical bytes hold a quote of a value only behind a backslash: this is the member of the guard and nothing else.
_COUNTED: Final = b'{"guard":"rate","outcome":"allow"'


class Elsewhere:
    """What the log says of the calls of other processes. One thread takes at a time.

    Processes of one gateway count their calls by themselves: their `leaves` are no others'.
    """

    def __init__(self, store: Store, leaves: CountBook | None = None):
        self._store = store
        self._leaves = leaves
        self._family: deque[tuple[int, int]] = deque()
        self._counted = -1  # the log's size when the first calls were taken
        self._spans: deque[tuple[int, int]] = deque(maxlen=MAX_SPANS)

    @property
    def moved(self) -> bool:
        """Whether there are calls that were not taken."""
        return bool(self._spans) or self._counted < 0

    def written(self, start: int, stop: int) -> None:
        """Another process wrote the leaves from `start` to before `stop`."""
        if self._counted < 0 or stop <= self._counted:
            return
        self._spans.extend(self._foreign(max(start, self._counted), stop))

    def wrote(self, start: int, stop: int) -> None:
        """This process writes the leaves from `start` to before `stop`, and holds the end of the log."""
        if self._leaves is not None:
            with self._leaves as book:
                self._learn(book)
                book.write(Counted(b"", start, stop))
                self._join(start, stop)

    def _learn(self, book: CountBook) -> None:
        for one in book.others():
            self._join(one.time, one.a)

    def _join(self, start: int, stop: int) -> None:
        """Note what this gateway wrote; what follows on what is known makes one span with it."""
        if self._family and self._family[-1][0] <= start <= self._family[-1][1]:
            start = self._family.pop()[0]
        self._family.append((start, stop))

    def _foreign(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of a span that no process of this gateway wrote."""
        if self._leaves is None:
            return [(start, stop)]
        found: list[tuple[int, int]] = []
        with self._leaves as book:
            self._learn(book)
            for first, end in self._family:
                if start < end and first < stop:
                    if first > start:
                        found.append((start, first))
                    start = end
            while len(self._family) > 1 and self._family[0][1] <= stop:
                self._family.popleft()
        if start < stop:
            found.append((start, stop))
        return found

    def take(self, since: int) -> Iterator[tuple[str, int]]:
        """Agents and times of counted calls, not before `since` (microseconds), in order of time.

        Raises `StoreUnavailable`; what was not read then is read the next time.
        """
        with self._store.reader() as reader:
            if self._counted < 0:
                size = reader.head().size
                if self._leaves is not None:
                    with self._leaves as book:
                        book.begin(size + 1)
                        size = book.origin - 1
                yield from _counted(reader, 0, size, since)
                self._counted = size
                self.written(size, reader.head().size)
            while self._spans:
                yield from _counted(reader, *self._spans[0], since)
                self._spans.popleft()


def _counted(reader: Reader, start: int, stop: int, since: int) -> Iterator[tuple[str, int]]:
    start = max(start, stop - MAX_RECEIPTS)
    pages: list[list[Entry]] = []
    while stop > start:
        first = max(start, stop - _PAGE)
        page = list(reader.entries(first, stop))
        pages.append(page)
        if not page or page[0].time < since:
            break
        stop = first
    for page in reversed(pages):
        for entry in page:
            if entry.time >= since and entry.kind == "decision" and not entry.parent and _COUNTED in entry.body:
                yield entry.agent, entry.time


# Erasing a payload: it, its key and its salt are deleted for good; the log keeps its commitment and still verifies.


def erase_payload(receipt_id: str, *, principal: str) -> Unit:
    """The unit that erases the payload of one receipt, with a receipt of its own that names who did it.

    Recording it raises `InvalidCall` (404) where there is no such receipt, or nothing left to erase.
    """

    def apply(transaction: Transaction) -> Sequence[Draft]:
        entry = transaction.entry_by_id(receipt_id)
        if entry is None or not transaction.erase_payload(entry.index):
            raise InvalidCall("there is no payload under this receipt", code="not_found", status=404)
        members = {
            "kind": "erasure",
            "receipt_id": new_id(),
            "parent": receipt_id,
            "principal": principal,
            "action": "erase",
        }
        return (Draft(members=members),)

    return Unit(apply=apply)


def revealing_all(principal: str) -> Unit:
    """The unit that puts on record that every payload is about to be written out unmasked."""
    members = {"kind": "access", "receipt_id": new_id(), "principal": principal, "action": "export"}
    return Unit(drafts=(Draft(members=members),))


class Known(Struct, frozen=True, kw_only=True):
    """The newest decision of a call; `decision` is `None` where its payload was erased.

    `patched` are the arguments that will run, where they are not the submitted ones. `permit_id` is the
    permit that was minted, `irreversible` whether the call cannot be undone, `mode` how it was decided.
    """

    index: int
    receipt_id: str
    epoch: int
    decision: Decision | None
    patched: dict[str, Any] | None = None
    permit_id: str | None = None
    irreversible: bool = False
    mode: str = "enforce"


def look_up(parts: Parts, key: tuple[str, str, str]) -> Known | None:
    """What the log knows of the call `(principal, session, call_id)`."""
    with parts.store.reader() as reader:
        index = reader.latest_call(*key)
        if index is None:
            return None
        entry = reader.entry(index)
        if entry is None:
            raise StoreCorrupt("the store knows a call whose leaf it does not have")
        payload, salt = load_payload(parts, reader, entry)
    return known_of(entry, payload, salt)


def known_of(entry: Entry, payload: dict[str, Any] | None, salt: bytes) -> Known:
    """The known decision that an entry and its payload hold."""
    body = orjson.loads(entry.body)
    return Known(
        index=entry.index,
        receipt_id=entry.receipt_id,
        epoch=-1 if payload is None else payload["epoch"],
        decision=None if payload is None else recall(entry, payload, salt),
        patched=None if payload is None else payload.get("patched"),
        permit_id=body.get("permit_id"),
        irreversible=payload is not None and payload.get("irreversible", False),
        mode=body["settings"]["mode"],
    )


def load_payload(parts: Parts, reader: Reader, entry: Entry) -> tuple[dict[str, Any] | None, bytes]:
    """The decrypted payload of a leaf and its salt; `None` where it was erased or never stored.

    Raises `StoreCorrupt` where it is not the one that the receipt commits to.
    """
    stored = reader.payload(entry.index)
    if stored is None:
        return None, b""
    text = parts.keys.open_payload(stored.key, stored.body)
    # Canonical bytes hold a quote of a value only behind a backslash: this is the member and nothing else.
    if f'"payload_commitment":"{payload_commitment(stored.salt, text)}"'.encode() not in entry.body:
        raise StoreCorrupt("a stored payload is not the one that its receipt commits to")
    payload: dict[str, Any] = parse(text)
    return payload, stored.salt


def arguments_of(parts: Parts, entry: Entry) -> dict[str, Any]:
    """The arguments with which a recorded call may run; none where its payload was erased or never stored."""
    with parts.store.reader() as reader:
        payload = load_payload(parts, reader, entry)[0] or {}
    arguments: dict[str, Any] = payload.get("patched", payload.get("arguments", {}))
    return arguments
