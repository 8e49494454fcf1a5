"""The tree against an independent, literal reading of RFC 6962, section 2.1, and its known vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.core.ports import Head
from aegis.errors import InvalidCall, LogInvalid, StoreCorrupt
from aegis.log.merkle import (
    EMPTY_ROOT,
    Frontier,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root_at,
    root_from_inclusion,
    verify_consistency,
    verify_inclusion,
)

# The inputs and roots that the implementations of Certificate Transparency test with.
VECTOR_LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
VECTOR_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def mth(leaves: Sequence[bytes]) -> bytes:
    """MTH of RFC 6962, 2.1, over leaf hashes, as the text has it."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return hashlib.sha256(b"\x01" + mth(leaves[:k]) + mth(leaves[k:])).digest()


class Log:
    """A reader over leaf hashes that counts what is read."""

    def __init__(self, leaves: Sequence[bytes]):
        self.leaves = list(leaves)
        frontier, nodes = Frontier.empty().extend(leaves)
        self.nodes = {(node.level, node.position): node.hash for node in nodes}
        self.frontier = frontier
        self.hashes_read = 0

    def head(self) -> Head:
        return Head(size=len(self.leaves))

    def leaf_hashes(self, start: int, stop: int) -> list[bytes]:
        found = self.leaves[start:stop]
        self.hashes_read += len(found)
        return found

    def node(self, level: int, position: int) -> bytes | None:
        self.hashes_read += 1
        return self.nodes.get((level, position))


def numbered(count: int) -> list[bytes]:
    return [leaf_hash(number.to_bytes(4, "big")) for number in range(count)]


SIZES = (1, 2, 3, 7, 8, 255, 256, 257, 300, 511, 512, 513, 700)
LONG = Log(numbered(66_000))


def test_leaf_and_node_hashes_are_domain_separated() -> None:
    assert leaf_hash(b"ab") == hashlib.sha256(b"\x00ab").digest()
    assert node_hash(b"a", b"b") == hashlib.sha256(b"\x01ab").digest()
    assert Frontier.empty().root() == EMPTY_ROOT == mth([])


def test_roots_equal_the_vectors_of_certificate_transparency() -> None:
    frontier = Frontier.empty()
    for body, root in zip(VECTOR_LEAVES, VECTOR_ROOTS, strict=True):
        frontier, _ = frontier.extend([leaf_hash(body)])
        assert frontier.root().hex() == root


@given(st.lists(st.integers(0, 70), max_size=8))
def test_a_frontier_does_not_depend_on_how_leaves_are_grouped(groups: list[int]) -> None:
    leaves = numbered(sum(groups))
    frontier = Frontier.empty()
    nodes = []
    at = 0
    for group in groups:
        frontier, finished = Frontier.decode(frontier.encode()).extend(leaves[at : at + group])
        nodes.extend(finished)
        at += group
    assert frontier.size == len(leaves)
    assert frontier.root() == mth(leaves)
    whole, all_nodes = Frontier.empty().extend(leaves)
    assert (frontier, nodes) == (whole, all_nodes)


def test_extending_leaves_the_frontier_before_it_as_it_was() -> None:
    before, _ = Frontier.empty().extend(numbered(5))
    copy = Frontier.decode(before.encode())
    before.extend(numbered(9))
    assert before == copy


def test_nodes_are_the_complete_subtrees_at_tile_levels_alone() -> None:
    leaves = LONG.leaves
    levels = {level for level, _ in LONG.nodes}
    assert levels == {8, 16}
    assert {position for level, position in LONG.nodes if level == 8} == set(range(66_000 // 256))
    assert {position for level, position in LONG.nodes if level == 16} == {0}
    for position in (0, 1, 256):
        assert LONG.nodes[(8, position)] == mth(leaves[position * 256 : (position + 1) * 256])
    assert LONG.nodes[(16, 0)] == mth(leaves[:65_536])


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 39, 41])
def test_a_frontier_of_the_wrong_length_is_corrupt(cut: int) -> None:
    frontier, _ = Frontier.empty().extend(numbered(3))
    data = frontier.encode()
    with pytest.raises(StoreCorrupt):
        Frontier.decode(data[:cut])
    with pytest.raises(StoreCorrupt):
        Frontier.decode(data + b"\0")


@pytest.mark.parametrize("size", SIZES)
def test_root_at_is_the_root_the_log_had(size: int) -> None:
    assert root_at(size, Log(numbered(700))) == mth(numbered(size))


def test_root_at_zero_is_the_empty_root() -> None:
    assert root_at(0, Log([])) == EMPTY_ROOT


@pytest.mark.parametrize("size", range(1, 34))
def test_every_leaf_of_small_trees_is_proved(size: int) -> None:
    log = Log(numbered(33))
    root = mth(log.leaves[:size])
    for index in range(size):
        path = inclusion_proof(index, size, log)
        verify_inclusion(log.leaves[index], index, size, path, root)
        for other in range(size):
            if other != index:
                with pytest.raises(LogInvalid):
                    verify_inclusion(log.leaves[index], other, size, path, root)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_inclusion_in_a_long_log(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(LONG.leaves)))
    index = data.draw(st.integers(0, size - 1))
    path = inclusion_proof(index, size, LONG)
    root = root_at(size, LONG)
    verify_inclusion(LONG.leaves[index], index, size, path, root)
    if path:
        at = data.draw(st.integers(0, len(path) - 1))
        wrong = list(path)
        wrong[at] = bytes([wrong[at][0] ^ 1]) + wrong[at][1:]
        with pytest.raises(LogInvalid):
            verify_inclusion(LONG.leaves[index], index, size, wrong, root)


@pytest.mark.parametrize("second", range(1, 34))
def test_every_pair_of_small_trees_is_consistent(second: int) -> None:
    log = Log(numbered(33))
    for first in range(second + 1):
        path = consistency_proof(first, second, log)
        roots = mth(log.leaves[:first]), mth(log.leaves[:second])
        verify_consistency(first, second, *roots, path)
        if first:
            with pytest.raises(LogInvalid):
                verify_consistency(first, second, roots[0], leaf_hash(b"other"), path)
        with pytest.raises(LogInvalid):
            verify_consistency(first, second, leaf_hash(b"other"), roots[1], path)
        with pytest.raises(LogInvalid):
            verify_consistency(first, second, *roots, [*path, leaf_hash(b"more")])
        if path:
            with pytest.raises(LogInvalid):
                verify_consistency(first, second, *roots, path[:-1])
            for at in range(len(path)):
                wrong = [*path[:at], leaf_hash(b"other"), *path[at + 1 :]]
                with pytest.raises(LogInvalid):
                    verify_consistency(first, second, *roots, wrong)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_consistency_in_a_long_log(data: st.DataObject) -> None:
    second = data.draw(st.integers(1, len(LONG.leaves)))
    first = data.draw(st.integers(0, second))
    path = consistency_proof(first, second, LONG)
    verify_consistency(first, second, root_at(first, LONG), root_at(second, LONG), path)


def test_proofs_of_another_pair_of_sizes_are_refused() -> None:
    log = Log(numbered(20))
    path = consistency_proof(6, 17, log)
    roots = root_at(6, log), root_at(17, log)
    for first, second in ((5, 17), (7, 17), (6, 16), (17, 6), (-1, 17)):
        with pytest.raises(LogInvalid):
            verify_consistency(first, second, *roots, path)
    # A tree of 18 leaves has the shape of one of 17 on the left edge, and another root.
    with pytest.raises(LogInvalid):
        verify_consistency(6, 18, roots[0], root_at(18, log), path)


def test_a_fork_has_no_consistency_proof() -> None:
    ours, theirs = Log(numbered(12)), Log([*numbered(5), leaf_hash(b"fork"), *numbered(12)[6:]])
    for log in (ours, theirs):
        with pytest.raises(LogInvalid) as caught:
            verify_consistency(8, 12, root_at(8, ours), root_at(12, theirs), consistency_proof(8, 12, log))
        assert caught.value.broken.kind == "proof_invalid"


def test_a_proof_reads_no_more_than_a_tile_a_level() -> None:
    LONG.hashes_read = 0
    inclusion_proof(40_000, 66_000, LONG)
    assert 0 < LONG.hashes_read <= 3 * 512
    LONG.hashes_read = 0
    consistency_proof(40_001, 65_999, LONG)
    assert 0 < LONG.hashes_read <= 3 * 512
    LONG.hashes_read = 0
    root_at(65_999, LONG)
    assert 0 < LONG.hashes_read <= 3 * 512


@pytest.mark.parametrize(("index", "size"), [(-1, 5), (5, 5), (0, 0), (0, 11), (3, -1)])
def test_a_leaf_outside_the_log_has_no_proof(index: int, size: int) -> None:
    with pytest.raises(InvalidCall):
        inclusion_proof(index, size, Log(numbered(10)))


@pytest.mark.parametrize(("first", "second"), [(-1, 5), (6, 5), (2, 11)])
def test_sizes_outside_the_log_have_no_proof(first: int, second: int) -> None:
    with pytest.raises(InvalidCall):
        consistency_proof(first, second, Log(numbered(10)))


def test_a_path_of_the_wrong_length_is_refused() -> None:
    log = Log(numbered(11))
    path = inclusion_proof(4, 11, log)
    root = root_at(11, log)
    for wrong in (path[:-1], [*path, path[-1]], [], [path[0][:-1], *path[1:]], [path[0] + b"\0", *path[1:]]):
        with pytest.raises(LogInvalid):
            verify_inclusion(log.leaves[4], 4, 11, wrong, root)
    with pytest.raises(LogInvalid):
        root_from_inclusion(log.leaves[0], 0, 1, [log.leaves[1]])
    with pytest.raises(LogInvalid):
        root_from_inclusion(log.leaves[0], 0, 0, [])


def test_a_lost_node_or_leaf_is_reported_as_corruption() -> None:
    log = Log(numbered(600))
    del log.nodes[(8, 0)]
    with pytest.raises(StoreCorrupt):
        root_at(600, log)
    short = Log(numbered(10))
    short.leaves[3] = b""
    with pytest.raises(StoreCorrupt):
        root_at(10, short)
