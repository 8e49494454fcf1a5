"""The pages of the SQLite file: the log ahead and its checkpoints, what erasing leaves, and older files."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aegis.log.merkle import Frontier
from aegis.store.rows import call_key
from aegis.store.sqlite import SqliteStore
from aegis.store.sqlite.connect import MIGRATIONS, PAGE_BYTES, migrate
from support.log_entries import append, entry, grow, payload


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path, durability="os", busy_s=0.2)
    yield opened
    opened.close()


def size_of(store: SqliteStore) -> int:
    with store.reader() as reader:
        return reader.head().size


def test_nothing_of_an_erased_payload_stays_in_the_files(store: SqliteStore, path: Path) -> None:
    with store.transaction() as transaction:
        append(transaction, entry(0), entry(1), payloads=(payload(0), payload(1)))
    with store.transaction() as transaction:
        assert transaction.erase_payload(0)
    store._checkpointer.stop()
    data = b"".join(file.read_bytes() for file in path.parent.iterdir())
    for secret in (b"sealed-payload-0", b"wrapped-key-0", b"salt-0"):
        assert secret not in data
    assert b"sealed-payload-1" in data


def test_an_erasure_that_a_reader_holds_up_is_finished_later(store: SqliteStore, path: Path) -> None:
    with store.transaction() as transaction:
        append(transaction, entry(0), payloads=(payload(0),))
    with store.reader() as reader:
        assert reader.payload(0) == payload(0)
        with store.transaction() as transaction:
            assert transaction.erase_payload(0)
        store._checkpointer.stop()
        assert reader.payload(0) == payload(0)
    grow(store, 600)
    assert size_of(store) == 601
    grow(store, 600)
    assert size_of(store) == 1_201
    store._checkpointer.stop()
    assert b"sealed-payload-0" not in b"".join(file.read_bytes() for file in path.parent.iterdir())


def test_the_log_ahead_is_moved_into_the_file_while_the_store_is_open(store: SqliteStore, path: Path) -> None:
    empty = path.stat().st_size
    for _ in range(4):
        grow(store, 400)
        size_of(store)  # whatever is read stands in a commit
    store._checkpointer.stop()
    assert path.stat().st_size > empty


def test_the_log_ahead_is_written_again_from_its_start(store: SqliteStore, path: Path) -> None:
    commits = 3_000
    for at in range(commits):
        with store.transaction() as transaction:
            append(transaction, entry(at))
        if at % 100 == 0:
            store._checkpointer.stop()
    store._checkpointer.stop()
    # A commit writes two pages at the least.
    assert path.with_name("log.db-wal").stat().st_size < commits * PAGE_BYTES


def test_a_reader_that_stays_does_not_stop_commits(store: SqliteStore, path: Path) -> None:
    grow(store, 1)
    with store.reader() as reader:
        assert reader.head().size == 1
        for _ in range(12):
            grow(store, 200)
        store._checkpointer.stop()
        assert reader.head().size == 1
    assert size_of(store) == 2_401


def test_a_checkpoint_that_is_only_starting_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starting, go, stopped = threading.Event(), threading.Event(), threading.Event()
    start = threading.Thread.start

    def slow_start(thread: threading.Thread) -> None:
        if thread.name == "aegis-checkpoint":
            starting.set()
            assert go.wait(60)
        start(thread)

    store = SqliteStore(path, durability="os")
    grow(store, 1)

    def commit_and_start() -> None:
        with store.transaction() as transaction:
            append(transaction, entry(1), payloads=(payload(1),))
        with store.transaction() as transaction:
            transaction.erase_payload(1)

    def stop() -> None:
        store._checkpointer.stop()
        stopped.set()

    monkeypatch.setattr(threading.Thread, "start", slow_start)
    with ThreadPoolExecutor(2) as pool:
        committing = pool.submit(commit_and_start)
        assert starting.wait(60)
        stopping = pool.submit(stop)
        assert not stopped.wait(0.05)
        go.set()
        committing.result(60)
        stopping.result(60)
    store.close()


def test_a_file_of_the_first_version_keeps_everything(path: Path) -> None:
    path.parent.mkdir()
    old = sqlite3.connect(path, isolation_level=None)
    migrate(old, MIGRATIONS[:1])
    frontier, _ = Frontier.empty().extend([entry(0).leaf_hash, entry(1).leaf_hash])
    for item in (entry(0), entry(1)):
        old.execute(
            "INSERT INTO leaf VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                item.index,
                item.leaf_hash,
                item.receipt_id,
                item.time,
                item.kind,
                item.principal,
                item.agent,
                item.session,
                item.call_id,
                item.tool,
                item.decision,
                item.reason,
                item.parent,
                call_key(item.principal, item.session, item.call_id),
                item.body,
            ),
        )
    sealed = payload(0)
    old.execute("INSERT INTO payload VALUES (0, ?, ?, ?)", (sealed.salt, sealed.key, sealed.body))
    old.execute(
        "UPDATE head SET size = 2, leaf = ?, frontier = ?, time = ?, epoch = 5",
        (entry(1).leaf_hash, frontier.encode(), entry(1).time),
    )
    old.close()
    store = SqliteStore(path, durability="os")
    with store.reader() as reader:
        assert list(reader.entries(0, 9)) == [entry(0), entry(1)]
        assert (reader.payload(0), reader.payload(1)) == (sealed, None)
        head = reader.head()
        assert (head.size, head.epoch, Frontier.decode(head.frontier)) == (2, 5, frontier)
        found = reader.latest_call(entry(1).principal, entry(1).session, entry(1).call_id)
    assert found == (1 if entry(1).kind == "decision" else None)
    with store.transaction() as transaction:
        assert transaction.erase_payload(0)
    grow(store, 1)
    assert size_of(store) == 3
    store._checkpointer.stop()
    store.close()
    assert b"sealed-payload-0" not in path.read_bytes()


def test_a_file_whose_seal_stood_apart_keeps_it(path: Path) -> None:
    path.parent.mkdir()
    old = sqlite3.connect(path, isolation_level=None)
    migrate(old, MIGRATIONS[:3])
    columns = (
        "idx, leaf_hash, receipt_id, time, kind, principal, agent, session, call_id, tool, decision, reason, parent"
    )
    frontier = Frontier.empty()
    for item in (entry(0), entry(1)):
        frontier, _ = frontier.extend([item.leaf_hash])
        row = [getattr(item, "index" if name == "idx" else name) for name in columns.split(", ")]
        old.execute(
            f"INSERT INTO leaf ({columns}, body, frontier) VALUES ({','.join('?' * 15)})",
            (*row, item.body, frontier.encode()),
        )
    old.execute("UPDATE control SET seal = x'0102', epoch = 3")
    old.close()
    store = SqliteStore(path, durability="os")
    with store.reader() as reader:
        head = reader.head()
    assert (head.size, head.leaf, head.epoch, head.seal) == (2, entry(1).leaf_hash, 3, b"\1\2")
    with store.transaction() as transaction:
        transaction.put_seal(b"\3", ())
    grow(store, 1)
    with store.reader() as reader:
        assert (reader.head().size, reader.head().seal) == (3, b"\3")
    store.close()
