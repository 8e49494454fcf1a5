"""The tree over documents: whatever is put, removed and read again holds, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aegis.core.ports import Document, Head
from aegis.errors import StoreCorrupt
from aegis.log.seal import LEAF_ENTRIES, Seal, Sealer, Tree

KEY = b"k" * 32
HEAD = Head(size=3, leaf=b"l" * 32, frontier=b"f" * 72, time=5, epoch=1)


def document(key: str, version: int = 1, *, collection: str = "c", state: str = "", body: bytes = b"x") -> Document:
    return Document(collection=collection, key=key, version=version, state=state, body=body)


class Shelf:
    """Nodes as a store keeps them, and the seal over them."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self.seal = Seal()

    def tree(self) -> Tree:
        return Tree(Sealer(KEY), self.seal, self.nodes.get)

    def write(self, tree: Tree) -> None:
        root, nodes = tree.write()
        self.nodes.update(nodes)
        self.seal = Seal(self.seal.changes + 1, root)


_Names = st.integers(0, 60).map(str)
_Steps = st.lists(
    st.tuples(_Names, st.sampled_from(["put", "remove", "end"]), st.sampled_from(["", "a", "b"])), max_size=150
)


@given(steps=_Steps)
@settings(max_examples=120, deadline=None)
def test_the_tree_says_of_every_document_what_was_put_last(steps: list[tuple[str, str, str]]) -> None:
    shelf, kept = Shelf(), dict[str, Document]()
    tree = shelf.tree()
    for key, step, state in steps:
        if step == "end":
            shelf.write(tree)
            tree = shelf.tree()
        elif step == "remove":
            tree.remove("c", key)
            kept.pop(key, None)
        else:
            before = kept.get(key)
            kept[key] = document(key, 1 if before is None else before.version + 1, state=state, body=state.encode())
            tree.put(kept[key])
    for at in (tree, shelf.tree()) if not steps or steps[-1][1] == "end" else (tree,):
        for number in range(61):
            at.check("c", str(number), kept.get(str(number)))
        for state in ("a", "b"):
            assert at.count("c", state) == sum(one.state == state for one in kept.values())
        assert at.count("c", "") == at.total() == len(kept)
    shelf.write(tree)
    assert {entry.key for entry in shelf.tree().entries()} == set(kept)


def test_a_leaf_that_became_too_large_is_divided() -> None:
    shelf = Shelf()
    tree = shelf.tree()
    for number in range(LEAF_ENTRIES * 40):
        tree.put(document(str(number)))
    shelf.write(tree)
    assert len(shelf.nodes) > 20
    assert max(map(len, shelf.nodes.values())) < 2_000
    tree = shelf.tree()
    assert all(tree.find("c", str(number)) is not None for number in range(LEAF_ENTRIES * 40))


@pytest.mark.parametrize("version", [1, 3, 7])
def test_a_version_that_does_not_follow_is_refused(version: int) -> None:
    shelf = Shelf()
    tree = shelf.tree()
    tree.put(document("k"))
    with pytest.raises(StoreCorrupt, match="was changed in the store"):
        tree.put(document("k", version))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_flipped_bit_of_a_node_is_found(data: st.DataObject) -> None:
    shelf = Shelf()
    tree = shelf.tree()
    for number in range(40):
        tree.put(document(str(number)))
    shelf.write(tree)
    place = data.draw(st.sampled_from(sorted(shelf.nodes)))
    body = bytearray(shelf.nodes[place])
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    shelf.nodes[place] = bytes(body)
    with pytest.raises(StoreCorrupt):
        list(shelf.tree().entries())


def test_a_node_is_good_at_its_own_place_alone() -> None:
    shelf = Shelf()
    tree = shelf.tree()
    for number in range(40):
        tree.put(document(str(number)))
    shelf.write(tree)
    one, two = sorted(place for place in shelf.nodes if place)[:2]
    shelf.nodes[one], shelf.nodes[two] = shelf.nodes[two], shelf.nodes[one]
    with pytest.raises(StoreCorrupt, match="the seal of the documents was changed"):
        list(shelf.tree().entries())


@pytest.mark.parametrize(
    "changed",
    [
        {"size": 2}, {"leaf": b"m" * 32}, {"frontier": b"g" * 72}, {"time": 6}, {"epoch": 2}, {"seal": b""},
        {"seal": b"\x00"},
    ],
)  # fmt: skip
def test_a_seal_is_good_for_its_own_head_alone(changed: dict[str, object]) -> None:
    sealer = Sealer(KEY)
    head = replace(HEAD, seal=sealer.sealed(HEAD, 4, b"r" * 16))
    assert sealer.open(head).changes == 4
    with pytest.raises(StoreCorrupt):
        sealer.open(replace(head, **changed))


def test_a_seal_of_another_home_is_none() -> None:
    head = replace(HEAD, seal=Sealer(b"o" * 32).sealed(HEAD, 4, b"r" * 16))
    with pytest.raises(StoreCorrupt, match="belongs to another home"):
        Sealer(KEY).open(head)
