"""The SQLite file: private, shared by processes, forward-only, and honest about faults."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aegis.core.ports import Document, Search
from aegis.errors import StoreConflict, StoreCorrupt, StoreError, StoreUnavailable
from aegis.log.merkle import Frontier
from aegis.store.sqlite import SqliteStore
from aegis.store.sqlite import reader as sqlite_reader
from aegis.store.sqlite import store as sqlite_store
from aegis.store.sqlite.connect import MIGRATIONS, SCHEMA_VERSION, connect, migrate
from support.log_entries import append, entry, grow
from support.threads import together

ROOT = Path(__file__).parents[3]


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path, durability="os", busy_s=0.2)
    yield opened
    opened.close()


def size_of(store: SqliteStore) -> int:
    with store.reader() as reader:
        return reader.head().size


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Runs `code` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


def in_child(work: Callable[[], None]) -> int:
    """Runs `work` in a forked child; its exit status: 0, or 1 where it raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_file_and_its_directory_are_private(path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(path, durability="os")
        grow(store, 1)
        for name in ("log.db", "log.db-wal", "log.db-shm"):
            assert stat.S_IMODE((path.parent / name).stat().st_mode) == 0o600, name
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        store.close()
        path.chmod(0o644)
        SqliteStore(path, durability="os").close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize(("durability", "level"), [("fsync", 2), ("os", 1)])
def test_durability_is_the_level_of_synchronisation(
    store: SqliteStore, path: Path, durability: str, level: int
) -> None:
    connection = connect(path, durability=durability, busy_s=1, writer=True)  # type: ignore[arg-type]
    assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA secure_delete").fetchone() == (1,)
    connection.close()


def test_a_reopened_log_goes_on_where_it_was(store: SqliteStore, path: Path) -> None:
    grow(store, 3)
    store.close()
    again = SqliteStore(path)
    grow(again, 2)
    with again.reader() as reader:
        assert [found.index for found in reader.entries(0, 9)] == [0, 1, 2, 3, 4]
    again.close()


def test_two_stores_on_one_file_are_one_log(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(path, durability="os")
    grow(store, 1)
    grow(other, 1)
    with store.transaction() as transaction:
        transaction.bump_epoch()
        transaction.put_document(Document(collection="c", key="k", version=1, body=b""))
    assert other.epoch() == 1
    with other.reader() as reader:
        assert reader.head().size == 2
    with pytest.raises(StoreConflict), other.transaction() as transaction:
        transaction.put_document(Document(collection="c", key="k", version=1, body=b""))
    other.close()


APPEND = """
import sys
from pathlib import Path
from aegis.store.sqlite import SqliteStore
from support.log_entries import append, entry
store = SqliteStore(Path(sys.argv[1]), durability="os", busy_s=30)
name, count = sys.argv[2], int(sys.argv[3])
for at in range(count):
    with store.transaction() as transaction:
        size = transaction.head().size
        append(transaction, entry(size, receipt_id=f"{name}-{at}"))
    print(size + 1, flush=True)
store.close()
"""


def test_processes_build_one_log(path: Path) -> None:
    children = [python(APPEND, str(path), f"p{number}", "40") for number in range(3)]
    for child in children:
        child.communicate()
        assert child.returncode == 0
    store = SqliteStore(path)
    with store.reader() as reader:
        found = list(reader.entries(0, 1_000))
        frontier, _ = Frontier.empty().extend([item.leaf_hash for item in found])
        assert Frontier.decode(reader.head().frontier) == frontier
    assert [item.index for item in found] == list(range(120))
    assert {item.receipt_id for item in found} == {f"p{n}-{at}" for n in range(3) for at in range(40)}
    store.close()


@pytest.mark.parametrize("lines", [1, 60, 300])
def test_a_killed_process_loses_nothing_that_it_was_told_is_recorded(path: Path, lines: int) -> None:
    child = python(APPEND, str(path), "p", "100000")
    assert child.stdout is not None
    told = 0
    for _ in range(lines):
        told = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    rest = [line for line in child.stdout.read().split("\n")[:-1] if line]
    child.wait()
    told = int(rest[-1]) if rest else told
    store = SqliteStore(path)
    with store.reader() as reader:
        found = list(reader.entries(0, 10**6))
        head = reader.head()
    assert len(found) == head.size >= told
    assert [item.index for item in found] == list(range(head.size))
    frontier, _ = Frontier.empty().extend([item.leaf_hash for item in found])
    assert Frontier.decode(head.frontier) == frontier
    grow(store, 1)
    store.close()


def test_a_forked_child_makes_its_own_connections(store: SqliteStore) -> None:
    grow(store, 1)
    store.epoch()
    assert in_child(lambda: grow(store, 2)) == 0
    grow(store, 1)
    with store.reader() as reader:
        assert [found.index for found in reader.entries(0, 9)] == [0, 1, 2, 3]
        assert reader.head().size == 4


def test_a_fork_in_the_middle_of_a_transaction_does_not_hang_the_child(store: SqliteStore) -> None:
    def wait_for_the_parent() -> None:
        with pytest.raises(StoreUnavailable, match="another writer"):
            grow(store, 1)
        assert size_of(store) == 0

    with store.transaction() as transaction:
        append(transaction, entry(0))
        assert in_child(wait_for_the_parent) == 0
    assert size_of(store) == 1


def test_a_file_locked_by_another_process_is_unavailable_until_it_is_free(store: SqliteStore, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another writer"):
        grow(store, 1)
    assert store.epoch() == 0
    assert size_of(store) == 0
    other.execute("ROLLBACK")
    other.close()
    grow(store, 1)


def test_a_lost_file_is_noticed_never_made_anew_and_taken_up_again(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    grow(store, 2)
    path.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="cannot be found"):
            grow(store, 1)
        with pytest.raises(StoreUnavailable, match="cannot be found"):
            size_of(store)
    assert not path.exists()
    (tmp_path / "away").rename(path)
    grow(store, 1)
    assert size_of(store) == 3


def test_an_older_copy_put_in_place_is_refused(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    grow(store, 2)
    store.close()
    shutil.copy(path, tmp_path / "old")
    again = SqliteStore(path, durability="os")
    grow(again, 3)
    assert size_of(again) == 5
    for name in ("log.db-wal", "log.db-shm"):
        (path.parent / name).unlink(missing_ok=True)
    (tmp_path / "old").rename(path)
    with pytest.raises(StoreCorrupt, match="went back from 5 to 2"):
        grow(again, 1)
    again.close()


def test_a_file_of_zeros_and_a_file_of_others_are_not_stores(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 400)
    with pytest.raises(StoreCorrupt):
        SqliteStore(path)
    path.unlink()
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE cookies (name)")
    foreign.commit()
    foreign.close()
    with pytest.raises(StoreCorrupt, match="not a store of Aegis"):
        SqliteStore(path)


def test_a_damaged_page_is_corruption(path: Path) -> None:
    store = SqliteStore(path, durability="os")
    grow(store, 200)
    store.close()
    data = bytearray(path.read_bytes())
    for at in range(3 * 4096, len(data), 4096):
        data[at : at + 200] = b"\xff" * 200
    path.write_bytes(data)
    with pytest.raises(StoreError) as caught:
        again = SqliteStore(path, durability="os", busy_s=0.2)
        try:
            with again.reader() as reader:
                list(reader.entries(0, 1_000))
        finally:
            again.close()
    assert isinstance(caught.value, StoreCorrupt)


def test_a_missing_table_is_corruption(store: SqliteStore, path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("DROP TABLE node")
    other.commit()
    other.close()
    with pytest.raises(StoreCorrupt, match="tables"):
        grow(store, 256)
    assert size_of(store) == 0


def test_a_missing_head_is_corruption(store: SqliteStore, path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("DELETE FROM control")
    other.commit()
    other.close()
    for use in (lambda: grow(store, 1), store.epoch, lambda: size_of(store)):
        with pytest.raises(StoreCorrupt, match="head"):
            use()


def test_a_full_disk_refuses_and_recovers(store: SqliteStore, path: Path) -> None:
    def run_full() -> None:
        """A limit on the size of files is what a process can do to itself that comes nearest to a full disk."""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        grow(store, 10)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (128 * 1024, limits[1]))
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="disk"):
                grow(store, 2_000)
        assert size_of(store) == 10
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        grow(store, 5)
        assert size_of(store) == 15

    assert in_child(run_full) == 0
    assert size_of(store) == 15


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_a_file_that_may_not_be_written_is_unavailable(store: SqliteStore, path: Path) -> None:
    grow(store, 1)
    store.close()

    def run_without_rights() -> None:
        os.seteuid(65_534)
        with pytest.raises(StoreUnavailable):
            SqliteStore(path)

    assert in_child(run_without_rights) == 0


def test_a_read_only_database_is_unavailable(store: SqliteStore, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    grow(store, 1)
    connection = store._connect_writer()
    connection.execute("PRAGMA query_only = ON")
    store._drop_writer()
    monkeypatch.setattr(store, "_connect_writer", lambda: connection)
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        grow(store, 1)
    monkeypatch.undo()
    grow(store, 1)


def test_a_newer_file_is_left_alone(store: SqliteStore, path: Path) -> None:
    grow(store, 1)
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    other.close()
    store.close()
    with pytest.raises(StoreUnavailable, match="newer"):
        SqliteStore(path)


def test_a_running_store_stops_when_another_process_migrates_its_file(store: SqliteStore, path: Path) -> None:
    grow(store, 1)
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    other.close()
    store._drop_writer()
    with pytest.raises(StoreUnavailable, match="schema version"):
        grow(store, 1)


def test_migrations_go_forward_each_once(path: Path) -> None:
    store = SqliteStore(path)
    grow(store, 2)
    store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    more = (*MIGRATIONS, ("CREATE TABLE extra (x)", "INSERT INTO extra VALUES (1)"))
    migrate(connection, more)
    migrate(connection, more)
    assert connection.execute("SELECT count(*) FROM extra").fetchone() == (1,)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(more),)
    assert connection.execute("SELECT count(*) FROM leaf").fetchone() == (2,)
    connection.close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    SqliteStore(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, (*MIGRATIONS, ("CREATE TABLE extra (x)", "INSERT INTO nowhere VALUES (1)")))
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'extra'").fetchone() == (0,)
    connection.close()
    SqliteStore(path).close()


def test_threads_may_open_a_new_file_at_once(path: Path) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        try:
            store = SqliteStore(path, durability="os", busy_s=30)
            with store.transaction() as transaction:
                append(transaction, entry(transaction.head().size))
            store.close()
        except BaseException as error:
            failures.append(error)

    together(4, work)
    assert failures == []
    store = SqliteStore(path)
    assert size_of(store) == 4
    store.close()


def test_calls_that_share_an_index_key_are_told_apart(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sqlite_reader, sqlite_store):
        monkeypatch.setattr(module, "call_key", lambda *_: 7)
    with store.transaction() as transaction:
        append(transaction, entry(0, call_id="x"), entry(1, call_id="y"), entry(2, call_id="x", session="z"))
    with store.reader() as reader:
        assert reader.latest_call("p", "s", "x") == 0
        assert reader.latest_call("p", "s", "y") == 1
        assert reader.latest_call("p", "z", "x") == 2
        assert reader.latest_call("p", "s", "z") is None


def test_values_that_share_a_term_are_told_apart(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "INDEX_STEP", 1)
    monkeypatch.setattr("aegis.store.sqlite.reader.term", lambda *_: 7)
    with store.transaction() as transaction:
        append(transaction, entry(0, tool="x"), entry(1, tool="y"), entry(2, tool="x", agent="b"))
    for _ in range(2):
        with store.reader() as reader:
            assert [found.index for found in reader.search(Search(tool="x", agent="a"))] == [0]


def test_searching_extends_the_index_and_a_search_never_depends_on_it(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "INDEX_STEP", 10)
    monkeypatch.setattr(sqlite_store, "INDEX_STEPS", 2)
    grow(store, 45)
    probe = sqlite3.connect(path, isolation_level=None)
    for expected in (20, 40, 40):
        with store.reader() as reader:
            assert len(reader.search(Search(tool="t"))) == 45
        assert probe.execute("SELECT indexed FROM progress").fetchone() == (expected,)
    grow(store, 10)
    probe.execute("BEGIN IMMEDIATE")  # somebody else writes: the search answers all the same
    with store.reader() as reader:
        assert len(reader.search(Search(tool="t"))) == 55
    probe.execute("ROLLBACK")
    probe.close()
