"""What every store promises, over every engine: tests for pytest that a package runs over its own.

A test module that says `from aegis.testing.stores import *` and has a fixture `make` has all of them; `make()` opens a
new, empty store that waits for other writers for at most a fifth of a second, and the fixture closes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aegis.core.ports import Document, Entry, Head, Search, Store
from aegis.errors import InvalidCall, StoreConflict, StoreCorrupt, StoreUnavailable
from aegis.log.merkle import Frontier, inclusion_proof, root_at, verify_inclusion
from aegis.testing.entries import append, entry, grow, payload, sessions_of

Open = Callable[[], Store]

# What the tests are given; a package replaces what does not fit its engine.


@pytest.fixture
def store(make: Open) -> Store:
    """Give one empty store."""
    return make()


@pytest.fixture
def patient(make: Open) -> Store:
    """Give one empty store whose writers wait for each other as long as four of them take."""
    return make()


@pytest.fixture
def indexing() -> Callable[[st.DataObject], None]:
    """Draw how far an engine's own indexes have come, where it has any that lag behind."""
    return lambda data: None


def document(key: str = "k", version: int = 1, *, state: str = "", collection: str = "c") -> Document:
    return Document(collection=collection, key=key, version=version, body=b"body %d" % version, state=state)


def test_a_new_store_is_empty(store: Store) -> None:
    with store.reader() as reader:
        assert reader.head() == Head()
        assert reader.entry(0) is None
        assert reader.entry_by_id("r-0") is None
        assert reader.latest_call("p", "s", "c-0") is None
        assert list(reader.entries(0, 10)) == []
        assert reader.leaf_hashes(0, 10) == []
        assert reader.node(8, 0) is None
        assert reader.payload(0) is None
        assert reader.document("c", "k") is None
        assert reader.documents("c") == []
        assert reader.search(Search()) == []
        assert reader.sessions(before=None, limit=10) == []
    assert store.epoch() == 0


def test_a_seal_stays_with_the_head_and_its_nodes_only_grow_newer(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.put_seal(b"one", [document("n", 3), document("m", 1)])
        assert transaction.head().seal == b"one"
    grow(store, 3)
    with store.transaction() as transaction:
        append(transaction, entry(3))
        transaction.put_seal(b"two", [document("n", 2), document("m", 4, state="s")])
        assert transaction.head().seal == b"two"
    with pytest.raises(ZeroDivisionError), store.transaction() as transaction:
        transaction.put_seal(b"three", [document("n", 9)])
        raise ZeroDivisionError
    with store.reader() as reader:
        assert (reader.head().size, reader.head().seal) == (4, b"two")
        assert [one.version for one in reader.documents("c")] == [4, 3]
        assert reader.collections() == ["c"]
    with store.transaction() as transaction:
        assert transaction.head().seal == b"two"
        transaction.bump_epoch()
        assert transaction.head().seal == b"two"


def test_what_was_appended_is_read_back_in_order(store: Store) -> None:
    one = entry(0, agent="", session="", call_id="", parent="x", body=b"\x00\xff")
    with store.transaction() as transaction:
        append(transaction, one, payloads=(payload(0),))
    grow(store, 70)
    with store.transaction() as transaction:
        head = append(transaction, entry(71), entry(72))
    with store.reader() as reader:
        assert reader.head() == head
        assert reader.entry(0) == one
        assert reader.entry_by_id("r-0") == one
        assert reader.entries_by_prefix("r-70", 9) == [entry(70)]
        assert [found.index for found in reader.entries_by_prefix("r-7", 3)] == [7, 70, 71]
        assert reader.entries_by_prefix("r-8x", 9) == []
        assert reader.entry(72) == entry(72)
        assert reader.entry(73) is None
        assert reader.entry(-1) is None
        assert list(reader.entries(0, 100)) == [one, *(entry(index) for index in range(1, 73))]
        assert [found.index for found in reader.entries(5, 8)] == [5, 6, 7]
        assert reader.leaf_hashes(70, 99) == [entry(index).leaf_hash for index in (70, 71, 72)]
        assert reader.payload(0) == payload(0)
        assert reader.payload(1) is None


def test_many_entries_are_streamed(store: Store) -> None:
    grow(store, 1_203)
    with store.reader() as reader:
        assert [found.index for found in reader.entries(3, 1_201)] == list(range(3, 1_201))


def test_the_tree_can_be_proved_from_the_store(store: Store) -> None:
    for size in (1, 255, 300, 44):
        grow(store, size)
    with store.reader() as reader:
        head = reader.head()
        root = Frontier.decode(head.frontier).root()
        assert root_at(600, reader) == root
        for index in (0, 255, 256, 555, 599):
            path = inclusion_proof(index, 600, reader)
            verify_inclusion(entry(index).leaf_hash, index, 600, path, root)


@pytest.mark.parametrize("index", [0, 2, 4, 7])
def test_an_entry_that_does_not_continue_the_log_is_refused(store: Store, index: int) -> None:
    grow(store, 3)
    with pytest.raises(StoreCorrupt), store.transaction() as transaction:
        append(transaction, entry(index))
    with pytest.raises(StoreCorrupt), store.transaction() as transaction:
        append(transaction, entry(3), entry(5))
    grow(store, 1)
    with store.reader() as reader:
        assert [found.index for found in reader.entries(0, 9)] == [0, 1, 2, 3]


def test_a_head_that_is_not_the_end_is_refused(store: Store) -> None:
    with pytest.raises(StoreCorrupt), store.transaction() as transaction:
        transaction.append([entry(0)], [], [], Head(size=2, leaf=b"x", time=1))
    with store.reader() as reader:
        assert reader.head().size == 0


def test_a_payload_is_stored_once(store: Store) -> None:
    with pytest.raises(StoreCorrupt), store.transaction() as transaction:
        append(transaction, entry(0), payloads=(payload(0),))
        append(transaction, entry(1), payloads=(payload(0),))
    with store.reader() as reader:
        assert reader.payload(0) is None


def test_a_transaction_sees_its_own_writes(store: Store) -> None:
    with store.transaction() as transaction:
        append(transaction, entry(0), payloads=(payload(0),))
        transaction.put_document(document(state="open"))
        assert transaction.head().size == 1
        assert transaction.entry(0) == entry(0)
        assert transaction.entry_by_id("r-0") == entry(0)
        assert transaction.latest_call("p", "s", "c-0") == 0
        assert transaction.payload(0) == payload(0)
        assert transaction.document("c", "k") == document(state="open")
        assert transaction.documents("c", state="open") == [document(state="open")]
        assert transaction.search(Search(tool="t")) == [entry(0)]
        assert transaction.bump_epoch() == 1
        assert transaction.head().epoch == 1
        assert transaction.erase_payload(0)
        assert transaction.payload(0) is None
        assert not transaction.erase_payload(0)
        append(transaction, entry(1, call_id="c-0"))
        assert transaction.latest_call("p", "s", "c-0") == 1


def test_nothing_is_seen_before_the_commit(store: Store) -> None:
    grow(store, 2)
    with store.transaction() as transaction:
        append(transaction, entry(2, call_id="c-0"))
        transaction.put_document(document())
        transaction.bump_epoch()
        with store.reader() as reader:
            assert reader.head().size == 2
            assert reader.entry(2) is None
            assert reader.entry_by_id("r-2") is None
            assert reader.latest_call("p", "s", "c-0") == 0
            assert reader.document("c", "k") is None
            assert reader.leaf_hashes(0, 9) == [entry(0).leaf_hash, entry(1).leaf_hash]
            assert len(reader.search(Search())) == 2
        assert store.epoch() == 0
    assert store.epoch() == 1


def test_a_block_that_raises_leaves_nothing_behind(store: Store) -> None:
    grow(store, 254)
    with store.transaction() as transaction:
        transaction.put_document(document("kept"))
        append(transaction, entry(254), payloads=(payload(254),))
    with pytest.raises(RuntimeError, match="stop"), store.transaction() as transaction:
        append(transaction, entry(255, call_id="c-0"), payloads=(payload(255),))
        transaction.put_document(document())
        transaction.put_document(document("kept", 2))
        transaction.delete_document("c", "kept")
        transaction.erase_payload(254)
        transaction.bump_epoch()
        raise RuntimeError("stop")
    with store.reader() as reader:
        assert reader.head().size == 255
        assert reader.entry(255) is None
        assert reader.entry_by_id("r-255") is None
        assert reader.latest_call("p", "s", "c-0") == 0
        assert reader.node(8, 0) is None
        assert reader.payload(254) == payload(254)
        assert reader.payload(255) is None
        assert reader.documents("c") == [document("kept")]
    assert store.epoch() == 0
    grow(store, 1)


def test_a_view_stays_as_it_was(store: Store) -> None:
    grow(store, 3)
    with store.transaction() as transaction:
        transaction.put_document(document())
    with store.reader() as reader:
        before = reader.head()
        grow(store, 2)
        with store.transaction() as transaction:
            transaction.put_document(document(version=2))
            transaction.put_document(document("new"))
        assert reader.head() == before
        assert reader.entry(3) is None
        assert reader.document("c", "k") == document()
        assert reader.documents("c") == [document()]
        assert [found.index for found in reader.search(Search())] == [2, 1, 0]
    with store.reader() as reader:
        assert reader.head().size == 5
        assert reader.document("c", "k") == document(version=2)


def test_a_view_has_what_was_committed_before_it(store: Store) -> None:
    for index in range(0, 6, 2):
        with store.transaction() as transaction:
            append(transaction, entry(index))
        with store.transaction() as transaction:
            transaction.put_document(document(f"k-{index}"))
            append(transaction, entry(index + 1))
        with store.reader() as reader:
            assert reader.document("c", f"k-{index}") == document(f"k-{index}")
            assert reader.entry(index + 1) == entry(index + 1)
            assert reader.head().size == index + 2


def test_the_latest_call_is_the_newest_decision_of_exactly_that_call(store: Store) -> None:
    with store.transaction() as transaction:
        append(
            transaction,
            entry(0, call_id="x"),
            entry(1, call_id="x"),
            entry(2, call_id="x", kind="result"),
            entry(3, call_id="x", session="other"),
            entry(4, call_id="x", principal="other"),
            entry(5, call_id=""),
            entry(6, call_id="x", session="", principal="ps"),
            entry(7, call_id="sx", session="", principal="p"),
            entry(8, receipt_id=f"{8:032x}", call_id=f"{8:032x}"[::-1]),
            entry(9, receipt_id=f"{9:032x}", call_id=f"{9:032x}"[::-1]),
            entry(10, receipt_id=f"{10:032x}", call_id=f"{9:032x}"[::-1]),
            entry(11, receipt_id=f"{11:032x}", call_id=f"{11:032x}"[::-1], kind="result"),
        )
    with store.reader() as reader:
        assert reader.latest_call("p", "s", "x") == 1
        assert reader.latest_call("p", "other", "x") == 3
        assert reader.latest_call("other", "s", "x") == 4
        assert reader.latest_call("p", "s", "") is None
        assert reader.latest_call("p", "s", "y") is None
        assert reader.latest_call("ps", "", "x") == 6
        assert reader.latest_call("p", "", "sx") == 7
        # A call that its host gave no name has that of its first decision, read backwards.
        named = [f"{index:032x}"[::-1] for index in (8, 9, 11)]
        assert [reader.latest_call("p", "s", name) for name in named] == [8, 10, None]
        assert reader.latest_call("p", "other", named[0]) is None
        assert reader.latest_call("other", "s", named[0]) is None


def test_a_document_is_written_only_over_the_version_that_was_read(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.put_document(document())
        transaction.put_document(document(version=2, state="s"))
    for wrong in (-1, 0, 1, 2, 4):
        with pytest.raises(StoreConflict), store.transaction() as transaction:
            transaction.put_document(document(version=wrong))
    for wrong in (-1, 0, 2):
        with pytest.raises(StoreConflict), store.transaction() as transaction:
            transaction.put_document(document("absent", wrong))
    with store.transaction() as transaction:
        transaction.put_document(document(version=3))
    with store.reader() as reader:
        assert reader.documents("c") == [document(version=3)]


def test_a_lost_compare_and_set_can_be_caught_inside_the_transaction(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.put_document(document())
        with pytest.raises(StoreConflict):
            transaction.put_document(document())
        append(transaction, entry(0))
    with store.reader() as reader:
        assert reader.head().size == 1
        assert reader.document("c", "k") == document()


def test_a_deleted_document_begins_again_at_version_one(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.put_document(document())
        transaction.delete_document("c", "k")
        transaction.delete_document("c", "never there")
        transaction.put_document(document())
    with store.reader() as reader:
        assert reader.document("c", "k") == document()


def test_documents_are_listed_by_collection_state_and_key(store: Store) -> None:
    with store.transaction() as transaction:
        for key, state in (("b", "open"), ("a", "done"), ("é", "open"), ("d", ""), ("c", "open")):
            transaction.put_document(document(key, state=state))
        transaction.put_document(document("x", collection="other", state="open"))
    with store.reader() as reader:
        assert [found.key for found in reader.documents("c")] == ["a", "b", "c", "d", "é"]
        assert [found.key for found in reader.documents("c", state="open")] == ["b", "c", "é"]
        assert [found.key for found in reader.documents("c", after="b", limit=2)] == ["c", "d"]
        assert [found.key for found in reader.documents("c", state="open", after="b")] == ["c", "é"]
        assert reader.documents("c", limit=0) == []


def test_an_erased_payload_is_gone_and_its_leaf_stays(store: Store) -> None:
    with store.transaction() as transaction:
        append(transaction, entry(0), entry(1), payloads=(payload(0), payload(1)))
    with store.transaction() as transaction:
        assert transaction.erase_payload(0)
        assert not transaction.erase_payload(7)
    with store.reader() as reader:
        assert reader.payload(0) is None
        assert reader.payload(1) == payload(1)
        assert reader.entry(0) == entry(0)


def test_the_epoch_moves_by_bumping_alone(store: Store) -> None:
    with store.transaction() as transaction:
        assert transaction.bump_epoch() == 1
        assert transaction.bump_epoch() == 2
        transaction.append([entry(0)], [], [], Head(size=1, leaf=b"x", time=1, epoch=77))
        assert transaction.head().epoch == 2
    assert store.epoch() == 2
    with store.reader() as reader:
        assert reader.head().epoch == 2


def test_a_number_beyond_the_columns_is_a_misuse(make: Open) -> None:
    store = make()
    grow(store, 2)
    with store.reader() as reader:
        try:
            assert reader.entry(2**70) is None
        except InvalidCall as error:
            assert error.code == "out_of_range"


def test_writers_wait_for_each_other_and_give_up_in_time(store: Store) -> None:
    failures: list[BaseException] = []

    def write() -> None:
        try:
            grow(store, 1)
        except StoreUnavailable as error:
            failures.append(error)

    with store.transaction() as transaction:
        append(transaction, entry(0))
        other = threading.Thread(target=write)
        other.start()
        other.join()
    assert len(failures) == 1
    grow(store, 1)
    with store.reader() as reader:
        assert reader.head().size == 2


def test_threads_build_one_log(patient: Store) -> None:
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for at in range(25):
                with patient.transaction() as transaction:
                    size = transaction.head().size
                    append(transaction, entry(size, receipt_id=f"{name}-{at}", agent=name))
                with patient.reader() as reader:
                    assert reader.head().size > size
                    assert reader.entry_by_id(f"{name}-{at}") is not None
                patient.epoch()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with patient.reader() as reader:
        found = list(reader.entries(0, 1_000))
        assert [item.index for item in found] == list(range(100))
        assert {item.receipt_id for item in found} == {f"t{n}-{at}" for n in range(4) for at in range(25)}


def test_a_closed_store_answers_nothing(store: Store) -> None:
    grow(store, 1)
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable):
        store.epoch()
    with pytest.raises(StoreUnavailable), store.reader():
        pass
    with pytest.raises(StoreUnavailable), store.transaction():
        pass


def test_readers_of_a_closed_store_end_in_order(store: Store) -> None:
    grow(store, 1)
    with store.reader() as reader:
        assert reader.head().size == 1
        store.close()
    with pytest.raises(StoreUnavailable):
        store.epoch()


words = st.sampled_from(["", "a", "b", "c"])
names = st.sampled_from(["a", "b", "c"])
columns = {
    "kind": names,
    "principal": names,
    "agent": words,
    "session": words,
    "call_id": words,
    "tool": words,
    "decision": words,
    "reason": words,
    "parent": words,
}
searches = st.builds(
    Search,
    **{name: st.one_of(st.just(""), words) for name in columns},
    since=st.none() | st.integers(0, 45_000_000),
    until=st.none() | st.integers(0, 45_000_000),
    before=st.none() | st.integers(0, 45),
    limit=st.integers(0, 50),
)


def matches(item: Entry, search: Search) -> bool:
    equal = all(getattr(search, name) in ("", getattr(item, name)) for name in columns)
    since = search.since is None or item.time >= search.since
    until = search.until is None or item.time <= search.until
    return equal and since and until and (search.before is None or item.index < search.before)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_searching_finds_what_looking_at_every_entry_finds(
    make: Open, indexing: Callable[[st.DataObject], None], data: st.DataObject
) -> None:
    indexing(data)
    store = make()
    entries: list[Entry] = []
    for _ in range(data.draw(st.integers(1, 4))):
        for values in data.draw(st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=10)):
            index = len(entries)
            entries.append(replace(entry(index), **values))
            with store.transaction() as transaction:
                append(transaction, entries[-1])
        for search in data.draw(st.lists(searches, min_size=1, max_size=3)):
            expected = [item for item in reversed(entries) if matches(item, search)][: search.limit]
            with store.reader() as reader:
                assert reader.search(search) == expected
        before = data.draw(st.none() | st.integers(0, 45))
        limit = data.draw(st.integers(0, 9))
        with store.reader() as reader:
            rows = [row for row in sessions_of(entries) if before is None or row.last < before]
            assert reader.sessions(before=before, limit=limit) == rows[:limit]
    store.close()


__all__ = ["indexing", "patient", "store", *(name for name in tuple(globals()) if name.startswith("test_"))]
