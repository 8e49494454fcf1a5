"""What a crash leaves in the redo file: all that was acknowledged, once, in order, and nothing else."""

from __future__ import annotations

import os
import signal
import threading
import zlib
from pathlib import Path

import pytest

from aegis.errors import StoreCorrupt, StoreUnavailable
from aegis.store.sqlite import SqliteStore, redo
from support.log_entries import append, entry, grow
from support.redo import NEEDS_LOCKS, check, crash, in_sqlite, python

PATIENCE_S = 120.0

pytestmark = NEEDS_LOCKS


@pytest.mark.parametrize("groups", [1, 40])
def test_a_crash_loses_nothing_that_was_acknowledged(path: Path, groups: int) -> None:
    crash(path, groups)
    store = SqliteStore(path)
    assert in_sqlite(path) == 2 + groups
    grow(store, 1)
    check(store, 3 + groups)
    store.close()
    again = SqliteStore(path)
    check(again, 3 + groups)
    again.close()


def test_several_that_open_after_a_crash_put_it_back_once(path: Path) -> None:
    crash(path, 7)
    stores: list[SqliteStore] = []
    threads = [threading.Thread(target=lambda: stores.append(SqliteStore(path, busy_s=PATIENCE_S))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        check(store, 9)
        store.close()
    assert len(stores) == 4


def test_a_torn_frame_was_never_acknowledged_and_ends_what_counts(path: Path) -> None:
    crash(path, 3)
    file = path.with_name("log.db-redo")
    data = bytearray(file.read_bytes())
    last = bytes(data).rstrip(b"\0")
    data[len(last) - 1] ^= 1
    file.write_bytes(data)
    store = SqliteStore(path)
    check(store, 4)
    grow(store, 1)
    check(store, 5)
    store.close()


@pytest.mark.parametrize("left", [b"", b"\xff" * 64, b"\x00\x00\x00\x05" + b"\x01" * 40, os.urandom(4_096)])
def test_a_file_that_holds_no_frame_is_nothing(path: Path, left: bytes) -> None:
    crash(path, 1)
    path.with_name("log.db-redo").write_bytes(left)
    store = SqliteStore(path)
    check(store, 2)
    grow(store, 1)
    check(store, 3)
    store.close()


def test_a_whole_frame_that_is_none_is_corruption(path: Path) -> None:
    crash(path, 1)
    body = b"\x93\x01\x02\x03"
    frame = len(body).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    path.with_name("log.db-redo").write_bytes(frame)
    with pytest.raises(StoreCorrupt, match="no frame"):
        SqliteStore(path)


def test_frames_of_the_past_do_not_count_again(path: Path) -> None:
    crash(path, 3)
    left = path.with_name("log.db-redo").read_bytes()
    store = SqliteStore(path)
    check(store, 5)
    store.close()
    path.with_name("log.db-redo").write_bytes(left)
    store = SqliteStore(path)
    check(store, 5)
    store.close()


def test_frames_that_do_not_continue_the_log_are_left_out_and_said_so(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crash(path, 3)
    other = tmp_path / "other" / "log.db"
    elsewhere = SqliteStore(other)
    with elsewhere.transaction() as transaction:
        append(transaction, entry(0, body=b"other"), entry(1, body=b"log"))
    elsewhere.close()
    other.with_name("log.db-redo").write_bytes(path.with_name("log.db-redo").read_bytes())
    elsewhere = SqliteStore(other)
    check(elsewhere, 2)
    assert "does not continue the log" in caplog.text
    elsewhere.close()


def test_frames_of_another_schema_are_not_guessed_at(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash(path, 1)
    with monkeypatch.context() as newer:
        newer.setattr(redo, "SCHEMA_VERSION", 99)
        with pytest.raises(StoreUnavailable, match="another version"):
            SqliteStore(path)
    store = SqliteStore(path)
    check(store, 3)
    store.close()


APPEND = """
import sys
from pathlib import Path
from aegis.store.sqlite import SqliteStore, redo
from support.log_entries import append, entry
redo.JOIN_S = 120.0
name, rounds, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for part in range(rounds):
    store = SqliteStore(Path(sys.argv[1]), durability="os", busy_s=120)
    for at in range(count):
        with store.transaction(appends=True) as transaction:
            size = transaction.head().size
            append(transaction, entry(size, receipt_id=f"{name}-{part}-{at}"))
        print(size + 1, flush=True)
    store.close()
"""


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


@pytest.mark.parametrize("lines", [1, 63, 64, 65, 300])
def test_a_killed_process_loses_nothing_that_it_was_told_is_recorded(path: Path, lines: int) -> None:
    child = python(APPEND, str(path), "p", "1", "1000000")
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
    check(store, size)
    store.close()
