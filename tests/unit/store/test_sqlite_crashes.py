"""What a crash, a full disk and a fork leave: all that was acknowledged, once, in order, and nothing else."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from aegis.errors import StoreUnavailable
from aegis.log.merkle import Frontier
from aegis.store.sqlite import SqliteStore
from support.log_entries import append, entry, grow
from support.threads import together

PATIENCE_S = 120.0
TESTS = Path(__file__).parents[2]

CRASH = """
import os, sys
from pathlib import Path
from aegis.core.ports import Document
from aegis.store.sqlite import SqliteStore
from support.log_entries import append, entry
store = SqliteStore(Path(sys.argv[1]), durability=sys.argv[3])
for version in range(1, int(sys.argv[2]) + 1):
    with store.transaction() as transaction:
        for key in ("k", f"own-{version}"):
            own = version if key == "k" else 1
            body = b"at %d" % own
            transaction.put_document(Document(collection="c", key=key, version=own, body=body, state="s"))
        append(transaction, entry(transaction.head().size))
    print(version, flush=True)
os._exit(0)
"""

APPEND = """
import sys
from pathlib import Path
from aegis.store.sqlite import SqliteStore
from support.log_entries import append, entry
name, rounds, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for part in range(rounds):
    store = SqliteStore(Path(sys.argv[1]), durability="os", busy_s=120)
    for at in range(count):
        with store.transaction() as transaction:
            size = transaction.head().size
            append(transaction, entry(size, receipt_id=f"{name}-{part}-{at}"))
        print(size + 1, flush=True)
    store.close()
"""


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


def crash(path: Path, groups: int, durability: str = "fsync") -> None:
    """Leave a store of `groups` leaves, each with documents of its own and one that counts them, never closed."""
    child = python(CRASH, str(path), str(groups), durability)
    out, _ = child.communicate()
    assert child.returncode == 0
    assert out.split()[-1] == str(groups)


def check(store: SqliteStore, size: int) -> None:
    """The log holds exactly `size` leaves, each once and in order, under the tree that belongs to them."""
    with store.reader() as reader:
        found = list(reader.entries(0, 10**6))
        head = reader.head()
    assert [one.index for one in found] == list(range(size))
    frontier, _ = Frontier.empty().extend([one.leaf_hash for one in found])
    assert Frontier.decode(head.frontier) == frontier
    assert head.size == size


def counted(store: SqliteStore) -> int:
    """The version of the document that every group of `CRASH` writes."""
    with store.reader() as reader:
        found = reader.document("c", "k")
    assert found is not None
    assert found.body == b"at %d" % found.version
    return found.version


def in_child(work: str, path: Path) -> int:
    """The status of a child of this process that does `work`, a function of this module, with the store at `path`."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            globals()[work](path)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("groups", [1, 40])
def test_a_crash_loses_nothing_that_was_acknowledged(path: Path, groups: int, durability: str) -> None:
    crash(path, groups, durability)
    store = SqliteStore(path)
    assert counted(store) == groups
    with store.reader() as reader:
        assert len(reader.documents("c", state="s")) == groups + 1
    grow(store, 1)
    check(store, groups + 1)
    store.close()
    again = SqliteStore(path)
    check(again, groups + 1)
    again.close()


def test_several_that_open_after_a_crash_find_one_log(path: Path) -> None:
    crash(path, 7)
    stores: list[SqliteStore] = []
    together(4, lambda: stores.append(SqliteStore(path, busy_s=PATIENCE_S)))
    for store in stores:
        check(store, 7)
        store.close()
    assert len(stores) == 4


def test_a_torn_commit_was_never_acknowledged_and_ends_what_counts(path: Path) -> None:
    crash(path, 3)
    file = path.with_name("log.db-wal")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    store = SqliteStore(path)
    assert counted(store) == 2
    check(store, 2)
    grow(store, 1)
    check(store, 3)
    store.close()


@pytest.mark.parametrize("lines", [1, 63, 200])
def test_a_killed_process_loses_nothing_that_it_was_told_is_recorded(path: Path, lines: int) -> None:
    child = python(CRASH, str(path), "1000000", "os")
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
        size = reader.head().size
    assert told <= size <= told + 1
    assert counted(store) == size
    check(store, size)
    store.close()


def test_processes_that_come_and_go_build_one_log(path: Path) -> None:
    children = [python(APPEND, str(path), f"p{number}", "6", "30") for number in range(3)]
    told: list[int] = []
    for child in children:
        out, _ = child.communicate()
        assert child.returncode == 0
        told += [int(line) for line in out.split()]
    assert sorted(told) == list(range(1, 541))
    store = SqliteStore(path)
    check(store, 540)
    with store.reader() as reader:
        assert len({one.receipt_id for one in reader.entries(0, 1_000)}) == 540
    store.close()


def fill_the_disk(path: Path) -> None:
    store = SqliteStore(path, busy_s=0.2)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for _ in range(30):
        grow(store, 1, body=os.urandom(4_000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="disk"):
            grow(store, 1, body=os.urandom(4_000))
        check(store, 30)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    grow(store, 1)
    check(store, 31)
    store.close()


def test_what_a_full_disk_does_not_take_is_refused_and_nothing_else_is_lost(path: Path) -> None:
    assert in_child("fill_the_disk", path) == 0
    store = SqliteStore(path)
    check(store, 31)
    store.close()


def test_a_commit_that_fails_leaves_nothing_behind(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(store, 2)

    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr(SqliteStore, "_commit", fails)
        with pytest.raises(StoreUnavailable):
            grow(store, 1)
    check(store, 2)
    grow(store, 1)
    check(store, 3)


def test_a_block_that_raises_undoes_itself_alone(store: SqliteStore) -> None:
    grow(store, 2)
    with pytest.raises(RuntimeError), store.transaction() as transaction:
        append(transaction, entry(2, receipt_id="undone"))
        raise RuntimeError
    with pytest.raises(RuntimeError), store.transaction():
        raise RuntimeError
    grow(store, 1)
    check(store, 3)
    with store.reader() as reader:
        assert reader.entry_by_id("undone") is None


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
    check(store, 3)


def test_a_redo_file_of_an_older_version_is_taken_away_or_refused(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    grow(store, 1)
    store.close()
    redo = path.with_name("log.db-redo")
    redo.write_bytes(b"\0\0\0\x05" + b"\x01" * 40)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="open it once with that one"):
            SqliteStore(path)
        assert redo.exists()
    for blank in (b"", bytes(1_048_576), bytes(8) + b"frames of the past"):
        redo.write_bytes(blank)
        store = SqliteStore(path)
        assert not redo.exists()
        check(store, 1)
        store.close()
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    redo.symlink_to(target)
    with pytest.raises(StoreUnavailable):
        SqliteStore(path)
    assert target.read_bytes() == b"kept"
