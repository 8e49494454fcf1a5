"""What the core needs from the outside, as protocols; implementations live in the layers above.

A store holds bytes and rows and knows no meaning. Every write happens in one exclusive transaction
that is durable when it returns, or that left nothing behind when it raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct


class Clock(Protocol):
    """Wall time in integer microseconds since the epoch, UTC."""

    def __call__(self) -> int: ...


class Signer(Protocol):
    """Holds one private key of one purpose."""

    @property
    def kid(self) -> str: ...

    def sign(self, message: bytes) -> bytes:
        """The raw Ed25519 signature (64 bytes) of `message`."""
        ...


class Head(Struct, frozen=True, kw_only=True):
    """The end of the log. `frontier` is the compact range of the tree; `epoch` counts control changes.

    `seal` authenticates the rest of the head and every document; it is empty where nobody has sealed them.
    """

    size: int = 0
    leaf: bytes = b""
    frontier: bytes = b""
    time: int = 0
    epoch: int = 0
    seal: bytes = b""


class Entry(Struct, frozen=True, kw_only=True):
    """One leaf as stored: its canonical bytes, and the columns by which it is found again."""

    index: int
    leaf_hash: bytes
    body: bytes
    receipt_id: str
    time: int
    kind: str
    principal: str
    agent: str = ""
    session: str = ""
    call_id: str = ""
    tool: str = ""
    decision: str = ""
    reason: str = ""
    parent: str = ""


def never_came(entry: Entry) -> bool:
    """Whether a leaf says of a result that it never came: nothing was looked at, and nothing was withheld."""
    return entry.kind == "result" and b'"execution":"unknown"' in entry.body


class Payload(Struct, frozen=True, kw_only=True):
    """The encrypted payload of one leaf, its wrapped key and its salt; all three go when it is erased."""

    index: int
    salt: bytes
    key: bytes
    body: bytes


class Node(Struct, frozen=True, kw_only=True):
    """The hash of a complete subtree of 2^level leaves, the `position`-th of its level."""

    level: int
    position: int
    hash: bytes


class Document(Struct, frozen=True, kw_only=True):
    """One small mutable record. `version` counts its writes from 1; `state` is a word to list by."""

    collection: str
    key: str
    version: int
    body: bytes
    state: str = ""


class Search(Struct, frozen=True, kw_only=True):
    """Which entries to list, newest first; empty members do not restrict. Times are microseconds."""

    kind: str = ""
    principal: str = ""
    agent: str = ""
    session: str = ""
    call_id: str = ""
    tool: str = ""
    decision: str = ""
    reason: str = ""
    parent: str = ""
    since: int | None = None
    until: int | None = None
    before: int | None = None
    limit: int = 100


class SessionRow(Struct, frozen=True, kw_only=True):
    """A session seen in the log: its name, principal and agent, and where it begins and ends."""

    session: str
    principal: str
    agent: str
    first: int
    last: int
    count: int


class Reader(Protocol):
    """A consistent view of the store."""

    def head(self) -> Head: ...

    def entry(self, index: int) -> Entry | None: ...

    def entry_by_id(self, receipt_id: str) -> Entry | None: ...

    def entries_by_prefix(self, prefix: str, limit: int) -> list[Entry]:
        """Entries whose receipt ids begin with `prefix`, at most `limit`, ordered by id."""
        ...

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Entries with `start <= index < stop`, in order, streamed in bounded memory."""
        ...

    def search(self, search: Search) -> list[Entry]: ...

    def sessions(self, *, before: int | None, limit: int) -> list[SessionRow]:
        """Sessions by their last entry, newest first; `before` is the `last` of the previous page's end."""
        ...

    def latest_call(self, principal: str, session: str, call_id: str) -> int | None:
        """Index of the newest entry of kind `decision` for this call, or `None`."""
        ...

    def leaf_hashes(self, start: int, stop: int) -> list[bytes]: ...

    def node(self, level: int, position: int) -> bytes | None: ...

    def payload(self, index: int) -> Payload | None: ...

    def document(self, collection: str, key: str) -> Document | None: ...

    def documents(self, collection: str, *, state: str = "", after: str = "", limit: int = 1_000) -> list[Document]:
        """Documents with key > `after`, ordered by key."""
        ...

    def collections(self) -> list[str]:
        """Every collection that holds a document, in order; it looks at all of them."""
        ...


class Transaction(Reader, Protocol):
    """The exclusive writer; sees its own writes."""

    def append(self, entries: Sequence[Entry], payloads: Sequence[Payload], nodes: Sequence[Node], head: Head) -> None:
        """Add leaves at the end and move the head; raises `StoreCorrupt` where an index is taken.

        A seal that `head` has may be written with it; an engine that leaves it out is given it by `put_seal`.
        """
        ...

    def put_document(self, document: Document) -> None:
        """Write a document whose `version` is one more than the stored one (1 where there is none).

        Raises `StoreConflict` otherwise.
        """
        ...

    def delete_document(self, collection: str, key: str) -> None: ...

    def put_seal(self, seal: bytes, nodes: Sequence[Document]) -> Head:
        """Write the head's seal, and the documents that belong to it; the head as it is then.

        A node is written where its version is later than the stored one; nothing is asked and nothing waits.
        """
        ...

    def erase_payload(self, index: int) -> bool:
        """Delete payload, key and salt of a leaf for good; whether there was one."""
        ...

    def bump_epoch(self) -> int:
        """Tell every process that control data (keys, agents, configuration) changed; the new epoch."""
        ...


class Store(Protocol):
    """One durable home of a log. Raises `StoreUnavailable` from every method when it cannot serve."""

    @property
    def is_remote(self) -> bool:
        """Whether a look may take as long as a network does, so that no event loop may wait for one."""
        ...

    def transaction(self, *, wait_s: float | None = None) -> AbstractContextManager[Transaction]:
        """An exclusive write transaction: committed durably on exit, undone when the block raises.

        `wait_s` is how long to wait for another writer, in seconds (`None`: as long as the store was opened
        with); beyond it entering raises `StoreBusy`, and nothing was begun.
        """
        ...

    def reader(self) -> AbstractContextManager[Reader]:
        """A consistent view that does not wait for writers."""
        ...

    def epoch(self) -> int:
        """The current control epoch; cheap enough to ask on every call, and sees other processes."""
        ...

    def close(self) -> None: ...


Write = Callable[[Transaction], None]
