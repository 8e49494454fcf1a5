"""Documents that are put with leaves: as durable as these, seen by every reader, and never older than they were."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from aegis.core.ports import Document, Transaction
from aegis.errors import StoreConflict
from aegis.store.sqlite import SqliteStore
from support.log_entries import append, entry, grow
from support.redo import NEEDS_LOCKS, check, in_sqlite, python

pytestmark = [NEEDS_LOCKS, pytest.mark.usefixtures("nobody_settles")]


def put(transaction: Transaction, version: int, key: str = "k", state: str = "") -> None:
    transaction.put_document(Document(collection="c", key=key, version=version, body=b"at %d" % version, state=state))


def count(store: SqliteStore) -> int:
    """One leaf more, and the document that counts them."""
    with store.transaction(appends=True) as transaction:
        known = transaction.document("c", "k")
        version = 1 if known is None else known.version + 1
        put(transaction, version)
        append(transaction, entry(transaction.head().size))
    return version


def version_in(store: SqliteStore, *, settled: bool) -> int:
    with store.reader(settled=settled) as reader:
        found = reader.document("c", "k")
    assert found is not None
    assert found.body == b"at %d" % found.version
    return found.version


def test_a_document_that_comes_with_a_leaf_waits_with_it(store: SqliteStore, path: Path) -> None:
    for _ in range(3):
        count(store)
    assert in_sqlite(path) == 0
    check(store, 3)
    assert in_sqlite(path) == 3


@pytest.mark.parametrize("settled", [True, False])
def test_no_reader_misses_a_document_or_the_leaf_that_came_with_it(store: SqliteStore, settled: bool) -> None:
    for version in range(1, 5):
        assert count(store) == version
        assert version_in(store, settled=settled) == version
        with store.reader(settled=settled) as reader:
            assert reader.entry(version - 1) == entry(version - 1)


def test_leaves_alone_do_not_make_an_unsettled_reader_wait(store: SqliteStore, path: Path) -> None:
    count(store)
    assert version_in(store, settled=False) == 1
    grow(store, 1)
    assert version_in(store, settled=False) == 1
    assert in_sqlite(path) == 1


def test_a_document_without_a_leaf_and_one_that_goes_are_committed_by_sqlite(store: SqliteStore, path: Path) -> None:
    count(store)
    with store.transaction(appends=True) as transaction:
        put(transaction, 2)
    assert in_sqlite(path) == 1
    with store.transaction(appends=True) as transaction:
        append(transaction, entry(1))
        transaction.delete_document("c", "k")
    assert in_sqlite(path) == 2
    with store.reader(settled=False) as reader:
        assert reader.document("c", "k") is None


def test_a_document_that_was_changed_meanwhile_leaves_nothing(store: SqliteStore) -> None:
    count(store)
    for wrong in (1, 3):
        with pytest.raises(StoreConflict), store.transaction(appends=True) as transaction:
            put(transaction, wrong)
            append(transaction, entry(1))
    assert count(store) == 2
    check(store, 2)


def test_a_lost_transaction_is_put_back_with_its_documents(store: SqliteStore) -> None:
    for _ in range(4):
        count(store)
    with pytest.raises(RuntimeError), store.transaction(appends=True) as transaction:
        put(transaction, 5)
        raise RuntimeError
    assert version_in(store, settled=False) == 4
    assert count(store) == 5
    check(store, 5)


CRASH = """
import os, sys
from pathlib import Path
from aegis.core.ports import Document
from aegis.store.sqlite import SqliteStore, redo
from support.log_entries import append, entry
redo.LAG_S = 3_600.0
store = SqliteStore(Path(sys.argv[1]), durability=sys.argv[3])
for version in range(1, int(sys.argv[2]) + 1):
    with store.transaction(appends=True) as transaction:
        for key in ("k", f"own-{version}"):
            own = version if key == "k" else 1
            body = b"at %d" % own
            transaction.put_document(Document(collection="c", key=key, version=own, body=body, state="s"))
        append(transaction, entry(transaction.head().size))
    print(version, flush=True)
assert store._ahead.head is not None
os._exit(0)
"""


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("groups", [1, 40, 70])
def test_a_crash_loses_no_document_that_was_acknowledged(path: Path, groups: int, durability: str) -> None:
    assert python(CRASH, str(path), str(groups), durability).wait() == 0
    store = SqliteStore(path)
    assert version_in(store, settled=False) == groups
    with store.reader() as reader:
        assert len(reader.documents("c", state="s")) == groups + 1
    assert count(store) == groups + 1
    check(store, groups + 1)
    store.close()


@pytest.mark.parametrize("lines", [1, 63, 64, 200])
def test_a_killed_process_has_counted_exactly_what_it_recorded(path: Path, lines: int) -> None:
    child = python(CRASH, str(path), "1000000", "os")
    assert child.stdout is not None
    for _ in range(lines):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    rest = [line for line in child.stdout.read().split("\n")[:-1] if line]
    child.wait()
    told = int(rest[-1]) if rest else lines
    store = SqliteStore(path)
    with store.reader() as reader:
        size = reader.head().size
    assert told <= size <= told + 1
    assert version_in(store, settled=False) == size
    check(store, size)
    store.close()


def test_frames_of_the_past_take_no_document_back(path: Path) -> None:
    assert python(CRASH, str(path), "3", "fsync").wait() == 0
    left = path.with_name("log.db-redo").read_bytes()
    store = SqliteStore(path)
    with store.transaction() as transaction:
        put(transaction, 4)
    store.close()
    path.with_name("log.db-redo").write_bytes(left)
    store = SqliteStore(path)
    assert version_in(store, settled=False) == 4
    store.close()


def test_a_frame_that_continues_the_log_takes_no_document_back(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    """What a frame leaves behind that was refused, where a document was changed without a leaf after it."""
    count(store)
    store._settle()
    count(store)
    frame = path.with_name("log.db-redo").read_bytes()
    other = tmp_path / "other" / "log.db"
    elsewhere = SqliteStore(other)
    count(elsewhere)
    for version in (2, 3):
        with elsewhere.transaction() as transaction:
            put(transaction, version)
    elsewhere.close()
    other.with_name("log.db-redo").write_bytes(frame)
    elsewhere = SqliteStore(other)
    assert version_in(elsewhere, settled=False) == 3
    check(elsewhere, 2)
    elsewhere.close()


def test_a_forked_child_sees_what_its_parent_acknowledged(store: SqliteStore) -> None:
    count(store)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if count(store) == 2 else 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert count(store) == 3
    check(store, 3)


def test_whoever_lists_while_documents_wait_sees_them(store: SqliteStore) -> None:
    count(store)
    with store.transaction(appends=True) as transaction:
        put(transaction, 2)
        put(transaction, 1, key="l")
        assert [(one.key, one.version) for one in transaction.documents("c")] == [("k", 2), ("l", 1)]
        put(transaction, 3)
        append(transaction, entry(1))
    assert version_in(store, settled=False) == 3
    check(store, 2)


def test_a_document_is_put_twice_in_one_group_and_no_version_twice(store: SqliteStore) -> None:
    with store.transaction(appends=True) as transaction:
        put(transaction, 1)
        put(transaction, 2)
        with pytest.raises(StoreConflict):
            put(transaction, 2)
        append(transaction, entry(0))
    assert count(store) == 3
    check(store, 1 + 1)


def test_a_document_changed_by_many_groups_is_written_to_sqlite_once(store: SqliteStore) -> None:
    for _ in range(5):
        count(store)
    written: list[str] = []
    assert store._writer is not None
    store._writer.set_trace_callback(written.append)
    assert version_in(store, settled=True) == 5
    store._writer.set_trace_callback(None)
    assert sum("document" in statement for statement in written) == 1
