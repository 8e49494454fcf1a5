"""A store whose documents are authenticated: what somebody else wrote into it is refused when it is read.

Every transaction that appends leaves or changes documents ends with a seal of the head (`aegis.log.seal`). Every view
checks the seal before its first document, and every document against the tree. What a list leaves out is found where
the list was read to its end. A receipt that is asked for by its index or identifier, to act on it, is checked too;
those that are searched for or streamed are not.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal

import orjson
from msgspec import Struct
from msgspec.structs import replace

from aegis.core.ports import Document, Entry, Head, Node, Payload, Reader, Search, SessionRow, Store, Transaction
from aegis.core.times import from_rfc3339
from aegis.errors import LogInvalid, StoreCorrupt
from aegis.log.append import check, entry_of
from aegis.log.merkle import leaf_hash
from aegis.log.seal import CHANGED, COLLECTION, DELETED, Seal, Sealer, Tree

_PAGE: Final = 1_000
_REMEMBERED: Final = 4_096  # receipts of this process that are known without a look at their signatures
_KEYS: Final = "keys"
Adopts = Literal["nothing", "unsealed", "everything"]


class Defect(Struct, frozen=True, kw_only=True):
    """One document that is not what was put last, and what happened to it."""

    collection: str
    key: str
    wrong: str

    def __str__(self) -> str:
        return f"`{self.collection}/{self.key}` {self.wrong}"


class SealedReader(Struct, eq=False):
    """`core.ports.Reader` over another one; raises `StoreCorrupt` for documents that nobody here wrote.

    `adopts` says that documents are taken as they are found, to be sealed so.
    """

    _store: SealedStore
    _inner: Reader
    _least: int
    adopts: bool
    _tree: Tree | None = None
    _listed: dict[tuple[str, str], tuple[str, int]] | None = None

    def head(self) -> Head:
        return self._inner.head()

    def entry(self, index: int) -> Entry | None:
        """Give the receipt, as it was appended; raises `StoreCorrupt` where it is another one."""
        found = self._inner.entry(index)
        return None if found is None else self._authentic(found)

    def entry_by_id(self, receipt_id: str) -> Entry | None:
        """Give the receipt, as it was appended; raises `StoreCorrupt` where it is another one."""
        found = self._inner.entry_by_id(receipt_id)
        return None if found is None else self._authentic(found)

    def entries_by_prefix(self, prefix: str, limit: int) -> list[Entry]:
        """List receipts, as they were appended; raises `StoreCorrupt` where one is another one."""
        return [self._authentic(entry) for entry in self._inner.entries_by_prefix(prefix, limit)]

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        return self._inner.entries(start, stop)

    def search(self, search: Search) -> list[Entry]:
        return self._inner.search(search)

    def sessions(self, *, before: int | None, limit: int) -> list[SessionRow]:
        return self._inner.sessions(before=before, limit=limit)

    def latest_call(self, principal: str, session: str, call_id: str) -> int | None:
        return self._inner.latest_call(principal, session, call_id)

    def leaf_hashes(self, start: int, stop: int) -> list[bytes]:
        return self._inner.leaf_hashes(start, stop)

    def node(self, level: int, position: int) -> bytes | None:
        return self._inner.node(level, position)

    def payload(self, index: int) -> Payload | None:
        return self._inner.payload(index)

    def document(self, collection: str, key: str) -> Document | None:
        """Give the document, as it was put last; raises `StoreCorrupt` where it is another one, or is gone."""
        found = self._inner.document(collection, key)
        if not self.adopts:
            self.tree().check(collection, key, found)
        return found

    def documents(self, collection: str, *, state: str = "", after: str = "", limit: int = _PAGE) -> list[Document]:
        """List documents with key > `after`, ordered by key, each as it was put last.

        A list that is read from its start to its end lacks nothing: `StoreCorrupt` is raised otherwise.
        """
        page = self._inner.documents(collection, state=state, after=after, limit=limit)
        if self.adopts:
            return page
        tree = self.tree()
        for document in page:
            tree.check(collection, document.key, document)
        if self._listed is None:
            self._listed = {}
        last, count = self._listed.get((collection, state), ("", 0)) if after else ("", 0)
        if last == after:
            count += len(page)
            if len(page) < limit and count != tree.count(collection, state):
                raise StoreCorrupt(f"a document of `{collection}` {DELETED}")
            self._listed[collection, state] = (page[-1].key if page else after, count)
        return page

    def collections(self) -> list[str]:
        return [name for name in self._inner.collections() if name != COLLECTION]

    def tree(self) -> Tree:
        """Give what the seal of this view says of documents; raises `StoreCorrupt` where it does not hold."""
        if self._tree is None:
            self._tree = Tree(self._store.sealer, self._store.checked(self.head(), self._least), self._read_node)
        return self._tree

    def _authentic(self, entry: Entry) -> Entry:
        """Guarantee that a receipt was appended here or signed by a key of the log, and that its columns agree."""
        try:
            body = orjson.loads(entry.body)
            if entry_of(body, entry.body, leaf_hash(entry.body), from_rfc3339(body["time"])) != entry:
                raise StoreCorrupt(f"receipt {entry.index} {CHANGED}")
            if self._store.appended.get(entry.index) != entry.leaf_hash and not self.adopts:
                described = self.document(_KEYS, str(body["sig"]["kid"]))
                public = b"" if described is None else base64.b64decode(orjson.loads(described.body)["public"])
                check(body, public)
        except (ValueError, KeyError, TypeError, LogInvalid) as error:
            raise StoreCorrupt(f"receipt {entry.index} {CHANGED}") from error
        return entry

    def _read_node(self, place: str) -> bytes | None:
        found = self._inner.document(COLLECTION, f".{place}")
        return None if found is None else found.body


class SealedTransaction(SealedReader, eq=False, kw_only=True):
    """`core.ports.Transaction` over another one; `finish` seals what it wrote."""

    _writes: Transaction  # `_inner`, as what is written goes through it
    _head: Head
    _seal: Seal
    _is_sealed: bool = True  # whether the head has its own seal
    _put: bool = False

    def head(self) -> Head:
        return self._head

    def append(self, entries: Sequence[Entry], payloads: Sequence[Payload], nodes: Sequence[Node], head: Head) -> None:
        writes, changed = self._writes, _NO_NODES
        if not self.adopts:  # what changed so far is sealed here, so that an engine writes the seal with the head
            if self._put:
                root, changed = self.tree().write()
                self._seal = Seal(self._seal.changes + 1, root)
                self._put, self._tree = False, None
            if head.epoch != self._head.epoch:
                head = replace(head, epoch=self._head.epoch)
            head = replace(head, seal=self._store.sealer.sealed(head, self._seal.changes, self._seal.root))
        writes.append(entries, payloads, nodes, head)
        if changed:
            writes.put_seal(head.seal, _documents(self._seal.changes, changed))
        self._head, self._is_sealed = writes.head() if self.adopts else head, True
        appended = self._store.appended
        if len(appended) > _REMEMBERED:
            appended.clear()
        for entry in entries:
            appended[entry.index] = entry.leaf_hash

    def put_document(self, document: Document) -> None:
        """Write a document whose `version` is one more than the stored one; raises `StoreConflict` otherwise."""
        self._writes.put_document(document)
        if not self.adopts:
            self._own().put(document)

    def delete_document(self, collection: str, key: str) -> None:
        self._writes.delete_document(collection, key)
        if not self.adopts:
            self._own().remove(collection, key)

    def erase_payload(self, index: int) -> bool:
        return self._writes.erase_payload(index)

    def bump_epoch(self) -> int:
        epoch = self._writes.bump_epoch()
        self._head, self._is_sealed = replace(self._head, epoch=epoch), False
        return epoch

    def put_seal(self, seal: bytes, nodes: Sequence[Document]) -> Head:
        raise StoreCorrupt("a sealed store seals itself")

    def tree(self) -> Tree:
        if self._tree is None:
            self._tree = Tree(self._store.sealer, self._seal, self._read_node)
        return self._tree

    def finish(self) -> tuple[Head, int]:
        """Seal what was written; the head as it will be committed, and how often documents changed."""
        if self.adopts:
            return self._adopt()
        seal = self._seal
        if self._put:
            root, nodes = self.tree().write()
            return self._write(Seal(seal.changes + 1, root), nodes)
        if self._is_sealed:
            self._store.seen = (self._head, seal)
            return self._head, seal.changes
        return self._write(seal, ())

    def _own(self) -> Tree:
        self._put = True
        self._listed = None
        return self.tree()

    def _adopt(self) -> tuple[Head, int]:
        """Seal every document as it is found, a page at a time."""
        while nodes := self._inner.documents(COLLECTION, limit=_PAGE):
            for node in nodes:
                self._writes.delete_document(COLLECTION, node.key)
        seal = Seal(changes=self._least + 1)
        for collection in self._inner.collections():
            after = ""
            while page := self._inner.documents(collection, after=after, limit=_PAGE):
                tree = Tree(self._store.sealer, seal, self._read_node)
                for document in page:
                    tree.adopt(document)
                after = page[-1].key
                root, changed = tree.write()
                seal = Seal(seal.changes + 1, root)
                self._write(seal, changed)
        return self._write(seal, ())

    def _write(self, seal: Seal, nodes: Sequence[tuple[str, bytes]]) -> tuple[Head, int]:
        store, changes = self._store, seal.changes
        sealed = store.sealer.sealed(self._head, changes, seal.root)
        self._head = head = self._writes.put_seal(sealed, _documents(changes, nodes))
        store.seen = (head, seal)
        return head, changes


_NO_NODES: Final[Sequence[tuple[str, bytes]]] = ()


def _documents(changes: int, nodes: Sequence[tuple[str, bytes]]) -> list[Document]:
    """Make the documents in which nodes of the tree stand after so many changes."""
    return [Document(collection=COLLECTION, key=f".{place}", version=changes, body=body) for place, body in nodes]


class SealedStore:
    """`core.ports.Store` over `inner`, sealed under `key`, which every process on it holds.

    `adopts` says which documents transactions take up as they are: none, those of a store that was never sealed, or
    whatever is there; an opening sets it back. `committed` is told of every end of the log, and how often documents
    had changed.
    """

    def __init__(self, inner: Store, key: bytes, *, adopts: Adopts = "nothing"):
        self.inner = inner
        self.sealer = Sealer(key)
        self.adopts: Adopts = adopts
        self.committed: Callable[[Head, int], None] | None = None
        self.changes = 0  # the most changes of documents that this process has seen
        self.appended: dict[int, bytes] = {}  # leaf hashes of receipts that were made here
        self.seen: tuple[Head, Seal] | None = None  # a head whose seal was made or checked here

    @property
    def is_remote(self) -> bool:
        """Whether the store is on another machine."""
        return self.inner.is_remote

    @contextmanager
    def transaction(self, *, wait_s: float | None = None) -> Iterator[SealedTransaction]:
        """Open an exclusive write transaction: sealed and committed durably on exit, undone when the block raises."""
        with self.inner.transaction(wait_s=wait_s) as inner:
            head, least = inner.head(), self.changes
            adopts = self.adopts != "nothing" and self._takes_up(head)
            seal = Seal(changes=least) if adopts else self.checked(head, least)
            transaction = SealedTransaction(self, inner, least, adopts, _writes=inner, _head=head, _seal=seal)
            yield transaction
            head, changes = transaction.finish()
        self.changes = max(self.changes, changes)
        if self.committed is not None:
            self.committed(head, changes)

    @contextmanager
    def reader(self) -> Iterator[SealedReader]:
        """Open a consistent view that does not wait for writers."""
        least = self.changes  # before the view begins: another thread may commit meanwhile
        with self.inner.reader() as reader:
            yield SealedReader(self, reader, least, self.adopts != "nothing" and self._takes_up(reader.head()))

    def _takes_up(self, head: Head) -> bool:
        """Whether documents are taken as they are found beside this head."""
        return self.adopts == "everything" or not head.seal

    def epoch(self) -> int:
        """Read the current control epoch; whether it is the true one is checked by the commit that is made under it."""
        return self.inner.epoch()

    def close(self) -> None:
        """Close the store."""
        self.inner.close()

    def defects(self) -> Iterator[Defect]:
        """Find each document that is not as it was put last; raises `StoreCorrupt` where the seal does not hold."""
        with self.inner.reader() as reader:
            view = SealedReader(self, reader, 0, adopts=False)
            tree, known = view.tree(), 0
            for collection in view.collections():
                after = ""
                while page := reader.documents(collection, after=after, limit=_PAGE):
                    for document in page:
                        entry = tree.find(collection, document.key)
                        known += entry is not None
                        wrong = tree.wrong(entry, document)
                        if wrong is not None:
                            yield Defect(collection=collection, key=document.key, wrong=wrong)
                    after = page[-1].key
            if known == tree.total():
                return
            for entry in tree.entries():
                if reader.document(entry.collection, entry.key) is None:
                    yield Defect(collection=entry.collection, key=entry.key, wrong=DELETED)

    def checked(self, head: Head, least: int) -> Seal:
        """Open the seal of a head, and guarantee that at least `least` changes of documents went before it.

        Raises `StoreCorrupt` otherwise.
        """
        known = self.seen
        if known is not None and known[0] == head:
            seal = known[1]
        else:
            seal = self.sealer.open(head)
            self.seen = (head, seal)
        if seal.changes < least:
            raise StoreCorrupt("the documents were put back to an older state")
        self.changes = max(self.changes, seal.changes)
        return seal
