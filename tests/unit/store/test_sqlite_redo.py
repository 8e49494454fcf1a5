"""The redo file: what it acknowledged is never lost, never torn, and in one order with every other process."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from aegis.errors import StoreBusy, StoreCorrupt, StoreUnavailable
from aegis.store.sqlite import SqliteStore, redo
from aegis.store.sqlite.redo import RedoFile
from support.log_entries import append, entry, grow, payload
from support.redo import NEEDS_LOCKS, check, in_sqlite

PATIENCE_S = 120.0

pytestmark = [NEEDS_LOCKS, pytest.mark.usefixtures("nobody_settles")]


def _has(path: Path, size: int) -> bool:
    return in_sqlite(path) == size


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_leaves_are_acknowledged_before_sqlite_has_them_and_every_reader_sees_them(
    store: SqliteStore, path: Path
) -> None:
    grow(store, 1)
    grow(store, 2)
    assert in_sqlite(path) == 0
    check(store, 3)
    assert in_sqlite(path) == 3


def test_the_thread_behind_settles_what_nobody_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redo, "LAG_S", 0.001)
    store = SqliteStore(path)
    for size in (1, 2):
        grow(store, 1)
        wait_for(partial(_has, path, size))
        assert in_sqlite(path) == size
    store.close()


def test_many_groups_make_one_commit(store: SqliteStore, path: Path) -> None:
    for _ in range(redo.MOST - 1):
        grow(store, 1)
    assert in_sqlite(path) == 0
    grow(store, 1)
    assert in_sqlite(path) == redo.MOST


def test_a_group_that_does_not_fit_is_committed_with_what_waits(store: SqliteStore, path: Path) -> None:
    grow(store, 1)
    grow(store, 1, body=os.urandom(redo.CAPACITY))
    assert in_sqlite(path) == 2
    check(store, 2)


def test_closing_commits_what_waits(store: SqliteStore, path: Path) -> None:
    grow(store, 5)
    store.close()
    assert in_sqlite(path) == 5


def test_a_second_opener_ends_writing_ahead_until_it_is_gone(store: SqliteStore, path: Path) -> None:
    grow(store, 1)
    store._settle()
    other = SqliteStore(path, busy_s=PATIENCE_S)
    for writer in (store, other, store):
        grow(writer, 1)
        assert store._ahead.head is None
        assert other._ahead.head is None
    assert in_sqlite(path) == 4
    other.close()
    grow(store, 1)
    assert in_sqlite(path) == 4
    check(store, 5)


def test_who_opens_waits_for_what_was_acknowledged_and_no_longer_than_it_says(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(store, 1)
    with monkeypatch.context() as hasty:
        hasty.setattr(redo, "JOIN_S", 0.01)
        with pytest.raises(StoreBusy, match="another process"):
            SqliteStore(path)
    monkeypatch.setattr(redo, "JOIN_S", PATIENCE_S)
    opened: list[SqliteStore] = []
    opening = threading.Thread(target=lambda: opened.append(SqliteStore(path, busy_s=PATIENCE_S)))
    opening.start()
    store._settle()
    opening.join()
    check(opened[0], 1)
    opened[0].close()


def test_what_sqlite_cannot_commit_is_put_back_when_it_can(path: Path) -> None:
    def run_full() -> None:
        store = SqliteStore(path, busy_s=0.2)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for _ in range(30):
            grow(store, 1, body=os.urandom(4_000))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="disk"), store.reader():
                raise AssertionError("a reader must not miss what was acknowledged")
        with pytest.raises(StoreUnavailable, match="disk"):
            grow(store, 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        grow(store, 1)
        check(store, 31)
        store.close()

    child = os.fork()
    if child == 0:
        status = 1
        try:
            run_full()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store = SqliteStore(path)
    check(store, 31)
    store.close()


def test_a_flush_that_fails_leaves_the_work_to_sqlite(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(store, 1)

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(redo, "_sync", fails)
        grow(store, 1)
    assert in_sqlite(path) == 2
    grow(store, 1)
    assert in_sqlite(path) == 3


def test_a_group_that_was_refused_is_not_put_back(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(store, 2)

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    def no_commit(_: SqliteStore, writer: sqlite3.Connection, written: int, *, erased: bool = False) -> None:
        del writer, written, erased
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr(redo, "_sync", fails)
        broken.setattr(SqliteStore, "_commit", no_commit)
        with pytest.raises(StoreUnavailable):
            grow(store, 1)
    check(store, 2)


def test_a_removed_redo_file_is_not_written_to(store: SqliteStore, path: Path) -> None:
    grow(store, 1)
    path.with_name("log.db-redo").unlink()
    grow(store, 1)
    assert in_sqlite(path) == 2


def test_a_block_that_raises_undoes_itself_alone(store: SqliteStore, path: Path) -> None:
    grow(store, 2)
    with pytest.raises(RuntimeError), store.transaction(appends=True) as transaction:
        append(transaction, entry(2, receipt_id="undone"))
        raise RuntimeError
    with pytest.raises(RuntimeError), store.transaction(appends=True):
        raise RuntimeError
    grow(store, 1)
    check(store, 3)
    with store.reader() as reader:
        assert reader.entry_by_id("undone") is None


def test_what_is_more_than_leaves_and_documents_is_committed_by_sqlite(store: SqliteStore, path: Path) -> None:
    grow(store, 1)
    with store.transaction(appends=True) as transaction:
        append(transaction, entry(1))
        transaction.bump_epoch()
    assert in_sqlite(path) == 2
    assert store.epoch() == 1


def test_nothing_of_an_erased_payload_stays_in_the_redo_file(store: SqliteStore, path: Path) -> None:
    with store.transaction(appends=True) as transaction:
        append(transaction, entry(0), payloads=(payload(0),))
    file = path.with_name("log.db-redo")
    assert b"sealed-payload-0" in file.read_bytes()
    with store.transaction() as transaction:
        assert transaction.erase_payload(0)
    assert not file.read_bytes().strip(b"\0")
    store._checkpointer.stop()
    assert b"sealed-payload-0" not in b"".join(one.read_bytes() for one in path.parent.iterdir())


def test_an_erasure_is_refused_where_the_redo_file_cannot_be_overwritten(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.transaction(appends=True) as transaction:
        append(transaction, entry(0), payloads=(payload(0),))

    def fails(_: RedoFile) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(RedoFile, "scrub", fails)
        with pytest.raises(StoreUnavailable), store.transaction() as transaction:
            transaction.erase_payload(0)
    with store.reader() as reader:
        assert reader.payload(0) == payload(0)


def test_an_older_copy_put_in_place_is_refused_with_leaves_ahead(store: SqliteStore, path: Path) -> None:
    grow(store, 1)
    store._settle()
    copy = path.read_bytes(), path.with_name("log.db-wal").read_bytes()
    grow(store, 1)
    store._settle()
    grow(store, 1)
    path.unlink()
    path.write_bytes(copy[0])
    path.with_name("log.db-wal").write_bytes(copy[1])
    path.with_name("log.db-shm").unlink()
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="went back"):
            grow(store, 1)


def test_a_fork_takes_nothing_from_parent_or_child(store: SqliteStore, path: Path) -> None:
    grow(store, 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            grow(store, 1)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    grow(store, 1)
    assert in_sqlite(path) == 2
    check(store, 3)


def test_the_file_is_private_and_no_link_is_followed(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    assert path.with_name("log.db-redo").stat().st_mode & 0o777 == 0o600
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    trap = tmp_path / "trap" / "log.db"
    trap.parent.mkdir()
    trap.with_name("log.db-redo").symlink_to(target)
    with pytest.raises(StoreUnavailable):
        SqliteStore(trap)
    assert target.read_bytes() == b"kept"
