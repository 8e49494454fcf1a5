"""Stores with leaves in their redo file: made by a process that crashed, and looked at."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from aegis.log.merkle import Frontier
from aegis.store.sqlite import SqliteStore, redo

TESTS = Path(__file__).parents[1]
NEEDS_LOCKS = pytest.mark.skipif(redo._SET_LOCK is None, reason="frames are written where the system has such locks")

CRASH = """
import os, sys
from pathlib import Path
from aegis.store.sqlite import SqliteStore, redo
from support.log_entries import grow
redo.LAG_S = 3_600.0
store = SqliteStore(Path(sys.argv[1]), durability="fsync")
grow(store, 2)
with store.transaction():
    pass
for _ in range(int(sys.argv[2])):
    grow(store, 1)
assert store._ahead.head is not None
os._exit(0)
"""


def in_sqlite(path: Path) -> int:
    """How many leaves SQLite itself has committed."""
    connection = sqlite3.connect(path)
    try:
        (count,) = connection.execute("SELECT count(*) FROM leaf").fetchone()
        return int(count)
    finally:
        connection.close()


def check(store: SqliteStore, size: int) -> None:
    """The log holds exactly `size` leaves, each once and in order, under the tree that belongs to them."""
    with store.reader() as reader:
        found = list(reader.entries(0, 10**6))
        head = reader.head()
    assert [one.index for one in found] == list(range(size))
    frontier, _ = Frontier.empty().extend([one.leaf_hash for one in found])
    assert Frontier.decode(head.frontier) == frontier
    assert head.size == size


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


def crash(path: Path, groups: int) -> None:
    """Leave a store of two leaves in SQLite and `groups` more in the redo file alone."""
    child = python(CRASH, str(path), str(groups))
    assert child.wait() == 0
    assert in_sqlite(path) == 2
