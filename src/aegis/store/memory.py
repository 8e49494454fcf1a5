"""The log in memory: for tests, demonstrations and gates whose log ends with their process.

It belongs to the process that made it, and is unavailable in a forked child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final

from msgspec.structs import replace

from aegis.core.ports import Document, Entry, Head, Node, Payload, Search, SessionRow
from aegis.errors import StoreBusy, StoreConflict, StoreUnavailable
from aegis.store.rows import check_continues, check_payloads

_COLUMNS: Final = ("kind", "principal", "agent", "session", "call_id", "tool", "decision", "reason", "parent")
_Documents = Mapping[tuple[str, str], Document]


class _Tables:
    """Everything stored. Only appended to or replaced whole, so that a view is a few references and a size."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.by_id: dict[str, int] = {}
        self.calls: dict[tuple[str, str, str], list[int]] = {}
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.payloads: dict[int, Payload] = {}
        self.documents: _Documents = {}
        self.head = Head()


class MemoryReader:
    """`core.ports.Reader` as of one commit; erased payloads are gone from earlier views too."""

    def __init__(self, tables: _Tables):
        self._tables = tables
        self._documents = tables.documents
        self._head = tables.head

    def head(self) -> Head:
        return self._head

    def entry(self, index: int) -> Entry | None:
        return self._tables.entries[index] if 0 <= index < self._head.size else None

    def entry_by_id(self, receipt_id: str) -> Entry | None:
        return self.entry(self._tables.by_id.get(receipt_id, -1))

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        for index in range(max(start, 0), min(stop, self._head.size)):
            yield self._tables.entries[index]

    def search(self, search: Search) -> list[Entry]:
        wanted = [(column, getattr(search, column)) for column in _COLUMNS if getattr(search, column)]
        stop = self._head.size if search.before is None else min(search.before, self._head.size)
        found: list[Entry] = []
        for index in range(stop - 1, -1, -1):
            if len(found) >= search.limit:
                break
            entry = self._tables.entries[index]
            if search.since is not None and entry.time < search.since:
                break  # times never run backwards along the log
            if search.until is not None and entry.time > search.until:
                continue
            if all(getattr(entry, column) == value for column, value in wanted):
                found.append(entry)
        return found

    def sessions(self, *, before: int | None, limit: int) -> list[SessionRow]:
        found: dict[tuple[str, str], SessionRow] = {}
        for entry in self.entries(0, self._head.size):
            if not entry.session:
                continue
            key = (entry.principal, entry.session)
            row = found.get(key) or SessionRow(
                session=entry.session, principal=entry.principal, agent="", first=entry.index, last=0, count=0
            )
            found[key] = replace(row, agent=max(row.agent, entry.agent), last=entry.index, count=row.count + 1)
        rows = sorted(found.values(), key=lambda row: row.last, reverse=True)
        return [row for row in rows if before is None or row.last < before][: max(limit, 0)]

    def latest_call(self, principal: str, session: str, call_id: str) -> int | None:
        for index in reversed(self._tables.calls.get((principal, session, call_id), ())):
            if index < self._head.size:
                return index
        return None

    def leaf_hashes(self, start: int, stop: int) -> list[bytes]:
        return [entry.leaf_hash for entry in self.entries(start, stop)]

    def node(self, level: int, position: int) -> bytes | None:
        if (position + 1) << level > self._head.size:
            return None
        return self._tables.nodes.get((level, position))

    def payload(self, index: int) -> Payload | None:
        return self._tables.payloads.get(index) if index < self._head.size else None

    def document(self, collection: str, key: str) -> Document | None:
        return self._documents.get((collection, key))

    def documents(self, collection: str, *, state: str = "", after: str = "", limit: int = 1_000) -> list[Document]:
        """Documents with key > `after`, ordered by key; `state` restricts where it is not empty."""
        found = [
            document
            for (owner, key), document in self._documents.items()
            if owner == collection and key > after and (not state or document.state == state)
        ]
        found.sort(key=lambda document: document.key)
        return found[: max(limit, 0)]

    def collections(self) -> list[str]:
        return sorted({collection for collection, _ in self._documents})


class MemoryTransaction(MemoryReader):
    """`core.ports.Transaction`: entries go to the end where no view looks yet, the rest is kept until commit."""

    def __init__(self, tables: _Tables):
        super().__init__(tables)
        self._before = tables.head
        self._changed: dict[tuple[str, str], Document] | None = None
        self._erased: set[int] = set()

    def append(self, entries: Sequence[Entry], payloads: Sequence[Payload], nodes: Sequence[Node], head: Head) -> None:
        """Add leaves at the end and move the head; its `epoch` is not written, `bump_epoch` alone moves that.

        Raises `StoreCorrupt` where the leaves do not continue the log.
        """
        tables, size = self._tables, self._head.size
        check_continues(size, entries, head)
        check_payloads(size, payloads, head)
        for entry in entries:
            tables.entries.append(entry)
            tables.by_id[entry.receipt_id] = entry.index
            if entry.kind == "decision" and entry.call_id:
                key = (entry.principal, entry.session, entry.call_id)
                tables.calls.setdefault(key, []).append(entry.index)
        for payload in payloads:
            tables.payloads[payload.index] = payload
        for node in nodes:
            tables.nodes[(node.level, node.position)] = node.hash
        self._head = replace(head, epoch=self._head.epoch, seal=self._head.seal)

    def payload(self, index: int) -> Payload | None:
        return None if index in self._erased else super().payload(index)

    def put_document(self, document: Document) -> None:
        """Write a document whose `version` is one more than the stored one; raises `StoreConflict` otherwise."""
        stored = self.document(document.collection, document.key)
        if document.version != (1 if stored is None else stored.version + 1):
            raise StoreConflict(f"a document of `{document.collection}` was changed meanwhile")
        self._own()[(document.collection, document.key)] = document

    def put_seal(self, seal: bytes, nodes: Sequence[Document]) -> None:
        """Write the head's seal and its nodes; each of these is written where it is later than what is stored."""
        for node in nodes:
            stored = self.document(node.collection, node.key)
            if stored is None or node.version > stored.version:
                self._own()[(node.collection, node.key)] = node
        self._head = replace(self._head, seal=seal)

    def delete_document(self, collection: str, key: str) -> None:
        self._own().pop((collection, key), None)

    def erase_payload(self, index: int) -> bool:
        """Delete payload, key and salt of a leaf."""
        if self.payload(index) is None:
            return False
        self._erased.add(index)
        return True

    def bump_epoch(self) -> int:
        """Move the control epoch."""
        self._head = replace(self._head, epoch=self._head.epoch + 1)
        return self._head.epoch

    def commit(self) -> None:
        """Let every later view see what this transaction wrote."""
        for index in self._erased:
            del self._tables.payloads[index]
        self._tables.documents = self._documents
        self._tables.head = self._head

    def undo(self) -> None:
        """Take back what was written behind the end of the log."""
        tables = self._tables
        for entry in reversed(tables.entries[self._before.size :]):
            tables.by_id.pop(entry.receipt_id, None)
            tables.payloads.pop(entry.index, None)
            calls = tables.calls.get((entry.principal, entry.session, entry.call_id))
            if calls and calls[-1] == entry.index:
                calls.pop()
        del tables.entries[self._before.size :]
        for place in [(level, at) for level, at in tables.nodes if (at + 1) << level > self._before.size]:
            del tables.nodes[place]

    def _own(self) -> dict[tuple[str, str], Document]:
        if self._changed is None:
            self._changed = dict(self._documents)
            self._documents = self._changed
        return self._changed


class MemoryStore:
    """`core.ports.Store` in this process; `busy_s` is how long a writer waits for another one, in seconds."""

    is_remote: Final = False

    def __init__(self, *, busy_s: float = 2.0):
        self._tables: _Tables | None = _Tables()
        self._lock = threading.Lock()
        self._busy_s = busy_s
        self._process = os.getpid()

    def transaction(self, *, wait_s: float | None = None, appends: bool = False) -> _WriteContext:
        """An exclusive write transaction: in force on exit, undone when the block raises."""
        return _WriteContext(self, self._busy_s if wait_s is None else wait_s)

    def reader(self, *, settled: bool = True) -> _ReadContext:
        """A consistent view that does not wait for writers; it is settled always."""
        return _ReadContext(self)

    def epoch(self) -> int:
        """The current control epoch."""
        return self._open().head.epoch

    def close(self) -> None:
        """Forget everything; afterwards every method raises `StoreUnavailable`."""
        self._tables = None

    def _open(self) -> _Tables:
        if self._tables is None:
            raise StoreUnavailable("the store is closed")
        if os.getpid() != self._process:  # both processes would continue the same log, each in its own way
            raise StoreUnavailable("a log in memory does not cross a fork")
        return self._tables


class _WriteContext:
    def __init__(self, store: MemoryStore, wait_s: float):
        self._store = store
        self._wait_s = wait_s
        self._transaction: MemoryTransaction | None = None

    def __enter__(self) -> MemoryTransaction:
        self._store._open()
        if not self._store._lock.acquire(timeout=self._wait_s):
            raise StoreBusy("the store is busy with another transaction of this process")
        try:
            self._transaction = MemoryTransaction(self._store._open())
        except BaseException:
            self._store._lock.release()
            raise
        return self._transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transaction = self._transaction
        if transaction is None:
            return
        try:
            if error is None:
                transaction.commit()
            else:
                transaction.undo()
        finally:
            self._store._lock.release()


class _ReadContext:
    def __init__(self, store: MemoryStore):
        self._store = store

    def __enter__(self) -> MemoryReader:
        return MemoryReader(self._store._open())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
