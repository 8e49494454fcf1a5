"""The seal of a store: a keyed tree over every document, whose root is authenticated together with the log's end.

The tree is a trie over keyed hashes of documents' names. A leaf names up to `LEAF_ENTRIES` documents, each with its
version, its state and a tag over its bytes; an inner node holds the hashes of its children, and the root how many
documents of each collection and state there are. The seal holds the root's hash and a code over it and the whole
head. A document that was changed, deleted, invented, exchanged, or put back in an older version does not lead to the
root; neither does an older tree under a newer log. All hashes are BLAKE2b under one key of the home, so that nobody
who only writes the store can compute one, or choose names that make the tree deep.

The tree does not tell a whole store that was put back to an earlier moment: the mark beside the store does.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from aegis.core.ports import Document, Head
from aegis.errors import StoreCorrupt

COLLECTION: Final = "seal"  # where nodes stand among the documents of a store; they are not sealed themselves
CHANGED: Final = "was changed in the store"
DELETED: Final = "was deleted from the store"
LEAF_ENTRIES: Final = 16  # a leaf of about one kilobyte
_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuv"  # one letter a level: 5 bits, 32 children
_BITS: Final = 5
_MOST: Final = 2_048  # nodes kept decoded: some megabytes
_HASH_BYTES: Final = 16
_NONE: Final = b""

ReadNode = Callable[[str], bytes | None]


class Sealed(Struct, frozen=True, array_like=True):
    """What the tree says of one document."""

    collection: str
    key: str
    version: int
    state: str
    tag: bytes


class _Node(Struct, frozen=True, array_like=True):
    """A node of the tree: the hashes of its children, or where it has none, documents; in the root, their numbers."""

    children: list[bytes]
    entries: list[Sealed]
    counts: dict[str, dict[str, int]] = {}


class Seal(Struct, frozen=True, array_like=True):
    """What stands in the head: how often documents changed, the root over them, and the code over all."""

    changes: int = 0
    root: bytes = _NONE
    code: bytes = _NONE


_encode = msgspec.msgpack.Encoder().encode
_decode_node = msgspec.msgpack.Decoder(_Node).decode
_decode_seal = msgspec.msgpack.Decoder(Seal).decode
_EMPTY: Final = _Node([], [])


class Sealer:
    """Makes and checks what only holders of `key` can make; keeps nodes that were checked."""

    def __init__(self, key: bytes):
        def start(purpose: bytes) -> hashlib.blake2b:
            return hashlib.blake2b(key=key, person=purpose, digest_size=_HASH_BYTES)

        # Begun once and copied: a key costs more to set than a short text to hash.
        self._of_document, self._of_place = start(b"aegis/document"), start(b"aegis/place")
        self._of_node, self._of_head = start(b"aegis/node"), start(b"aegis/head")
        self._nodes: dict[str, tuple[bytes, _Node]] = {}

    def tag(self, document: Document) -> bytes:
        """The tag of a document: over its name, version, state and bytes."""
        said = _encode((document.collection, document.key, document.version, document.state, document.body))
        return _finished(self._of_document, said)

    def place(self, collection: str, key: str) -> int:
        """Where a name stands in the tree: nobody without the key can tell."""
        return int.from_bytes(_finished(self._of_place, f"{collection}\0{key}".encode()), "big")

    def node(self, place: str, expected: bytes, read: ReadNode) -> _Node:
        """The node at `place`, where its hash is the one `expected`; raises `StoreCorrupt`."""
        known = self._nodes.get(place)
        if known is not None and known[0] == expected:
            return known[1]
        body = read(place)
        if body is None or self.hash_node(place, body) != expected:
            raise StoreCorrupt("the seal of the documents was changed in the store")
        try:
            node = _decode_node(body)
        except msgspec.DecodeError as error:  # nobody else could have made it
            raise StoreCorrupt("the seal of the documents is of another version") from error
        self.keep(place, expected, node)
        return node

    def keep(self, place: str, digest: bytes, node: _Node) -> None:
        """Remember a node; what is remembered counts only where its hash is asked for."""
        if len(self._nodes) >= _MOST:
            self._nodes.clear()
        self._nodes[place] = (digest, node)

    def hash_node(self, place: str, body: bytes) -> bytes:
        """The hash of a node, which is good at its place alone."""
        return _finished(self._of_node, b"%d\0%b%b" % (len(place), place.encode(), body))

    def sealed(self, head: Head, changes: int, root: bytes) -> bytes:
        """The seal of a head whose other members are final."""
        return _encode((changes, root, self._code(head, changes, root)))

    def open(self, head: Head) -> Seal:
        """The seal of `head`; raises `StoreCorrupt` where it is not that of this very head under this key."""
        try:
            seal = _decode_seal(head.seal)
        except msgspec.DecodeError as error:
            raise StoreCorrupt("the seal of the log's head is gone or malformed") from error
        if not hmac.compare_digest(seal.code, self._code(head, seal.changes, seal.root)):
            raise StoreCorrupt("the head of the log was changed in the store, or belongs to another home")
        return seal

    def _code(self, head: Head, changes: int, root: bytes) -> bytes:
        said = (head.size, head.leaf, head.frontier, head.time, head.epoch, changes, root)
        state = self._of_head.copy()
        state.update(_encode(said))
        return state.digest()


class Tree:
    """The documents as one seal commits to them, and changes on top; `read` answers the bytes of a node."""

    def __init__(self, sealer: Sealer, seal: Seal, read: ReadNode):
        self._sealer = sealer
        self._seal = seal
        self._read = read
        self._changed: dict[str, _Node] = {}

    def find(self, collection: str, key: str) -> Sealed | None:
        """What the seal says of a document; `None` where there is none. Raises `StoreCorrupt`."""
        digits = self._sealer.place(collection, key)
        place, expected = "", self._seal.root
        while True:
            node = self._node(place, expected)
            if not node.children:
                for entry in node.entries:
                    if entry.key == key and entry.collection == collection:
                        return entry
                return None
            digit = _digit(digits, len(place))
            place, expected = place + _ALPHABET[digit], node.children[digit]

    def check(self, collection: str, key: str, found: Document | None) -> None:
        """Guarantee that `found` is what was last put under that name; raises `StoreCorrupt` that says what it is."""
        wrong = self.wrong(self.find(collection, key), found)
        if wrong is not None:
            raise StoreCorrupt(f"a document of `{collection}` {wrong}")

    def wrong(self, entry: Sealed | None, found: Document | None) -> str | None:
        """What happened to a document that is not what the seal says; `None` where it is."""
        if entry is None:
            return None if found is None else "was put into the store from outside"
        if found is None:
            return DELETED
        if entry.tag == self._sealer.tag(found):
            return None
        return "was put back in an older version" if found.version < entry.version else CHANGED

    def count(self, collection: str, state: str) -> int:
        """How many documents a collection has, of one state or where that is empty, of all."""
        counts = self._node("", self._seal.root).counts.get(collection, {})
        return counts.get(state, 0) if state else sum(counts.values())

    def total(self) -> int:
        """How many documents there are."""
        return sum(sum(states.values()) for states in self._node("", self._seal.root).counts.values())

    def entries(self) -> Iterator[Sealed]:
        """What the seal says of every document, in no order; for those who look at all of them."""
        waiting = [("", self._seal.root)]
        while waiting:
            place, expected = waiting.pop()
            node = self._node(place, expected)
            yield from node.entries
            waiting.extend((place + _ALPHABET[digit], child) for digit, child in enumerate(node.children))

    def put(self, document: Document) -> None:
        """Take up a document that was written; raises `StoreCorrupt` where it does not follow the one before."""
        collection, key = document.collection, document.key
        entry = Sealed(collection, key, document.version, document.state, self._sealer.tag(document))
        before = self._change(collection, key, entry)
        if document.version != (1 if before is None else before.version + 1):
            raise StoreCorrupt(f"a document of `{collection}` {CHANGED}")
        self._count(before, entry)

    def adopt(self, document: Document) -> None:
        """Take up a document as it is found, whatever its version."""
        entry = Sealed(document.collection, document.key, document.version, document.state, self._sealer.tag(document))
        self._count(self._change(document.collection, document.key, entry), entry)

    def remove(self, collection: str, key: str) -> None:
        """Take up that a document was deleted."""
        if self.find(collection, key) is not None:
            self._count(self._change(collection, key, None), None)

    def write(self) -> tuple[bytes, list[tuple[str, bytes]]]:
        """The new root, and every node that changed; the deepest are hashed first."""
        nodes: list[tuple[str, bytes]] = []
        root = self._seal.root
        for place in sorted(self._changed, key=len, reverse=True):
            node = self._changed[place]
            body = _encode(node)
            digest = self._sealer.hash_node(place, body)
            self._sealer.keep(place, digest, node)
            nodes.append((place, body))
            if place:
                self._changed[place[:-1]].children[_ALPHABET.index(place[-1])] = digest
            else:
                root = digest
        return root, nodes

    def _node(self, place: str, expected: bytes) -> _Node:
        changed = self._changed.get(place)
        if changed is not None:
            return changed
        return _EMPTY if expected == _NONE else self._sealer.node(place, expected, self._read)

    def _change(self, collection: str, key: str, entry: Sealed | None) -> Sealed | None:
        """Put `entry` in place of what stands under that name, or take that out; what stood there."""
        digits = self._sealer.place(collection, key)
        place, expected = "", self._seal.root
        while True:
            node = self._own(place, expected)
            if not node.children:
                break
            digit = _digit(digits, len(place))
            place, expected = place + _ALPHABET[digit], node.children[digit]
        before = next((one for one in node.entries if one.key == key and one.collection == collection), None)
        if before is not None:
            node.entries.remove(before)
        if entry is not None:
            node.entries.append(entry)
            self._split(place, node)
        return before

    def _own(self, place: str, expected: bytes) -> _Node:
        """The node at `place`, to be changed here."""
        node = self._changed.get(place)
        if node is None:
            shared = self._node(place, expected)
            counts = {name: dict(states) for name, states in shared.counts.items()}
            node = self._changed[place] = _Node(list(shared.children), list(shared.entries), counts)
        return node

    def _split(self, place: str, node: _Node) -> None:
        """Divide a leaf that became too large among children."""
        while len(node.entries) > LEAF_ENTRIES:
            entries = node.entries[:]
            node.entries.clear()
            node.children.extend([_NONE] * len(_ALPHABET))
            below: dict[str, _Node] = {}
            for entry in entries:
                digit = _digit(self._sealer.place(entry.collection, entry.key), len(place))
                below.setdefault(place + _ALPHABET[digit], _Node([], [])).entries.append(entry)
            self._changed.update(below)
            place, node = max(below.items(), key=lambda item: len(item[1].entries))

    def _count(self, before: Sealed | None, after: Sealed | None) -> None:
        if before is not None and after is not None and before.state == after.state:
            return
        counts = self._own("", self._seal.root).counts
        for entry, step in ((before, -1), (after, 1)):
            if entry is not None:
                states = counts.setdefault(entry.collection, {})
                states[entry.state] = states.get(entry.state, 0) + step
                if not states[entry.state]:
                    del states[entry.state]


def _finished(begun: hashlib.blake2b, data: bytes) -> bytes:
    state = begun.copy()
    state.update(data)
    return state.digest()


def _digit(digits: int, level: int) -> int:
    """The child that a name belongs to at a level of the tree."""
    return digits >> (_BITS * level) & (1 << _BITS) - 1
