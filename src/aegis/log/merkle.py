"""The Merkle tree over the leaves of the log (RFC 6962, section 2; RFC 9162, section 2.1).

The end of the tree is kept as a compact range: the roots of its maximal complete subtrees. Of the
interior only subtrees of 256, 65,536, ... leaves are stored, so that a proof reads at most 256
hashes a level of tiles, however long the log is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from aegis.core.breaks import Break
from aegis.core.ports import Head, Node
from aegis.errors import InvalidCall, LogInvalid, StoreCorrupt

HASH_BYTES: Final = 32
TILE_LEVELS: Final = 8  # a tile is 2^8 hashes wide
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()
_SIZE_BYTES: Final = 8

_sha256 = hashlib.sha256


class HashReader(Protocol):
    """The part of a store's reader that proofs are made from."""

    def head(self) -> Head: ...

    def leaf_hashes(self, start: int, stop: int) -> list[bytes]: ...

    def node(self, level: int, position: int) -> bytes | None: ...


def leaf_hash(body: bytes) -> bytes:
    """The hash of a leaf: SHA-256(0x00 || body)."""
    return _sha256(b"\x00" + body).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an interior node: SHA-256(0x01 || left || right)."""
    return _sha256(b"\x01" + left + right).digest()


class Frontier(Struct, frozen=True):
    """The compact range of a tree of `size` leaves: roots of its complete subtrees, largest first."""

    size: int
    hashes: tuple[bytes, ...]

    @staticmethod
    def empty() -> Frontier:
        return Frontier(0, ())

    @staticmethod
    def decode(data: bytes) -> Frontier:
        """The frontier that `encode` wrote; nothing at all is the empty one. Raises `StoreCorrupt`."""
        if not data:
            return Frontier.empty()
        size = int.from_bytes(data[:_SIZE_BYTES], "big")
        if len(data) != _SIZE_BYTES + HASH_BYTES * size.bit_count():
            raise StoreCorrupt("the frontier of the log has a length that its size does not allow")
        starts = range(_SIZE_BYTES, len(data), HASH_BYTES)
        return Frontier(size, tuple(data[start : start + HASH_BYTES] for start in starts))

    def encode(self) -> bytes:
        """Eight bytes of size, big-endian, and the hashes."""
        return self.size.to_bytes(_SIZE_BYTES, "big") + b"".join(self.hashes)

    def extend(self, leaves: Sequence[bytes]) -> tuple[Frontier, list[Node]]:
        """The frontier after `leaves` (leaf hashes) were added, and the nodes to store.

        Nodes are the complete subtrees that these leaves finished, at the levels of tiles alone.
        """
        stack = list(self.hashes)
        size = self.size
        nodes: list[Node] = []
        for leaf in leaves:
            size += 1
            right = leaf
            level = 0
            # A set bit of the old size is a complete subtree waiting for one of its own size.
            remaining = size
            while not remaining & 1:
                right = _sha256(b"\x01" + stack.pop() + right).digest()
                remaining >>= 1
                level += 1
                if not level % TILE_LEVELS:
                    nodes.append(Node(level=level, position=remaining - 1, hash=right))
            stack.append(right)
        return Frontier(size, tuple(stack)), nodes

    def root(self) -> bytes:
        """The root of the tree (MTH)."""
        return _fold(self.hashes) if self.hashes else EMPTY_ROOT


def root_at(size: int, reader: HashReader) -> bytes:
    """The root that the log had when it held `size` leaves; raises `InvalidCall` beyond its end."""
    _check_size(size, reader)
    return _Tree(size, reader).root(0, size) if size else EMPTY_ROOT


def inclusion_proof(index: int, size: int, reader: HashReader) -> list[bytes]:
    """PATH(index, D[size]) of RFC 9162, 2.1.3.1: proves a leaf in the tree of `size` leaves.

    Raises `InvalidCall` where there is no such leaf or the log never had that size.
    """
    _check_size(size, reader)
    if not 0 <= index < size:
        raise InvalidCall("`index` must be below `size`", code="out_of_range")
    tree = _Tree(size, reader)
    path: list[bytes] = []
    start, stop = 0, size
    while stop - start > 1:
        middle = start + _split(stop - start)
        if index < middle:
            path.append(tree.root(middle, stop))
            stop = middle
        else:
            path.append(tree.root(start, middle))
            start = middle
    path.reverse()
    return path


def consistency_proof(first: int, second: int, reader: HashReader) -> list[bytes]:
    """PROOF(first, D[second]) of RFC 9162, 2.1.4.1: the later tree contains the earlier one.

    Empty where `first` is 0 or equal to `second`. Raises `InvalidCall` for sizes out of order or
    beyond the end of the log.
    """
    _check_size(second, reader)
    if not 0 <= first <= second:
        raise InvalidCall("`first` must be at most `second`", code="out_of_range")
    if first in {0, second}:
        return []
    tree = _Tree(second, reader)
    path: list[bytes] = []
    start, stop = 0, second
    # SUBPROOF(m, D, b): `start` moves only where the left subtree is complete in both trees.
    while first != stop:
        middle = start + _split(stop - start)
        if first <= middle:
            path.append(tree.root(middle, stop))
            stop = middle
        else:
            path.append(tree.root(start, middle))
            start = middle
    if start:
        path.append(tree.root(start, stop))
    path.reverse()
    return path


def root_from_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """The root that `path` leads to from `leaf` (RFC 9162, 2.1.3.2); raises `LogInvalid` for a wrong shape."""
    # (1) The leaf must be inside the tree.
    if not 0 <= index < size:
        raise _invalid("the leaf is outside the tree")
    # (2) fn is the leaf's index, sn the index of the last leaf.
    fn, sn = index, size - 1
    # (3) Start from the leaf.
    root = leaf
    # (4) Walk up: a sibling stands left of a right child and of the last node, else right.
    for sibling in path:
        if sn == 0:
            raise _invalid("the inclusion path is too long")
        if len(sibling) != HASH_BYTES:
            raise _invalid("a hash of the inclusion path has the wrong length")
        if fn & 1 or fn == sn:
            root = node_hash(sibling, root)
            while not fn & 1 and fn:
                fn >>= 1
                sn >>= 1
        else:
            root = node_hash(root, sibling)
        fn >>= 1
        sn >>= 1
    # (5) The walk must have ended at the root.
    if sn:
        raise _invalid("the inclusion path is too short")
    return root


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> None:
    """Guarantee that `leaf` (a leaf hash) is leaf `index` of the tree of `size` leaves with that root.

    Raises `LogInvalid`.
    """
    if root_from_inclusion(leaf, index, size, path) != root:
        raise _invalid("the inclusion path leads to another root")


def verify_consistency(first: int, second: int, first_root: bytes, second_root: bytes, path: Sequence[bytes]) -> None:
    """Guarantee that the tree of `second` leaves begins with the tree of `first` leaves (RFC 9162, 2.1.4.2).

    An empty tree and equal sizes need an empty path. Raises `LogInvalid`.
    """
    if not 0 <= first <= second:
        raise _invalid("the earlier tree is larger than the later one")
    if first in {0, second}:
        if path:
            raise _invalid("the consistency path must be empty")
        if first_root != (second_root if first == second else EMPTY_ROOT):
            raise _invalid("the earlier root is not the one of its tree")
        return
    # (1) A path is needed.
    if not path:
        raise _invalid("the consistency path is empty")
    if any(len(node) != HASH_BYTES for node in path):
        raise _invalid("a hash of the consistency path has the wrong length")
    # (2) Where the earlier tree is complete, its root is the first node.
    nodes = list(path) if first & (first - 1) else [first_root, *path]
    # (3) fn and sn are the last leaves of both trees.
    fn, sn = first - 1, second - 1
    # (4) Climb to the first node that is not a right child.
    while fn & 1:
        fn >>= 1
        sn >>= 1
    # (5) Both roots start from the first node.
    fr = sr = nodes[0]
    # (6) Walk up in both trees at once.
    for node in nodes[1:]:
        if sn == 0:
            raise _invalid("the consistency path is too long")
        if fn & 1 or fn == sn:
            fr = node_hash(node, fr)
            sr = node_hash(node, sr)
            while not fn & 1 and fn:
                fn >>= 1
                sn >>= 1
        else:
            sr = node_hash(sr, node)
        fn >>= 1
        sn >>= 1
    # (7) Both must have arrived.
    if sn:
        raise _invalid("the consistency path is too short")
    if fr != first_root:
        raise _invalid("the consistency path leads to another earlier root")
    if sr != second_root:
        raise _invalid("the consistency path leads to another later root")


class _Tree:
    """Subtree roots of a tree of `size` leaves; remembers the tiles that it has read."""

    def __init__(self, size: int, reader: HashReader):
        self._size = size
        self._reader = reader
        self._leaves: dict[int, list[bytes]] = {}
        self._nodes: dict[tuple[int, int], bytes] = {}

    def root(self, start: int, stop: int) -> bytes:
        """MTH(D[start:stop]); `start` must be a multiple of the largest complete subtree."""
        parts: list[bytes] = []
        while start < stop:
            level = (stop - start).bit_length() - 1
            parts.append(self._complete(level, start >> level))
            start += 1 << level
        return _fold(parts)

    def _complete(self, level: int, position: int) -> bytes:
        """The root of a complete subtree, from the stored hashes of the tile level below it."""
        width = 1 << (level % TILE_LEVELS)
        base = level - level % TILE_LEVELS
        first = position * width
        hashes = [self._stored(base, at) for at in range(first, first + width)]
        while len(hashes) > 1:
            hashes = [node_hash(hashes[at], hashes[at + 1]) for at in range(0, len(hashes), 2)]
        return hashes[0]

    def _stored(self, level: int, position: int) -> bytes:
        if not level:
            return self._leaf(position)
        found = self._nodes.get((level, position)) or self._reader.node(level, position)
        if found is None or len(found) != HASH_BYTES:
            raise StoreCorrupt(f"the log lacks the tree node at level {level}, position {position}")
        self._nodes[(level, position)] = found
        return found

    def _leaf(self, index: int) -> bytes:
        tile, offset = divmod(index, 1 << TILE_LEVELS)
        leaves = self._leaves.get(tile)
        if leaves is None:
            start = tile << TILE_LEVELS
            leaves = self._reader.leaf_hashes(start, min(start + (1 << TILE_LEVELS), self._size))
            self._leaves[tile] = leaves
        if offset >= len(leaves) or len(leaves[offset]) != HASH_BYTES:
            raise StoreCorrupt(f"the log lacks the leaf hash at index {index}")
        return leaves[offset]


def _fold(hashes: Sequence[bytes]) -> bytes:
    """The root over complete subtrees of falling sizes."""
    root = hashes[-1]
    for left in hashes[-2::-1]:
        root = node_hash(left, root)
    return root


def _split(size: int) -> int:
    """The largest power of two smaller than `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def _check_size(size: int, reader: HashReader) -> None:
    if not 0 <= size <= reader.head().size:
        raise InvalidCall("`size` must be between 0 and the size of the log", code="out_of_range")


def _invalid(detail: str) -> LogInvalid:
    return LogInvalid(Break(kind="proof_invalid", detail=detail))
