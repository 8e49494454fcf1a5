"""What several processes of one gateway count together: books in memory that all of them map, in one order for all.

A book is a ring of records of one size behind a lock of the kernel's, which is free the moment its holder is dead.
Who counts takes the lock, takes up what the others wrote since, and writes its own: what is counted is exact at that
moment, however many count. A process that is started again reads the ring from its oldest record.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

CAPACITY: Final = 1 << 18  # records of one book: what a process that is idle can be behind without missing any
_KEY: Final = 16
_RECORD: Final = Struct("<16s6q")
_HEADER: Final = Struct("<qq")  # records ever written, and where the log ended when the first one counted
_BASE: Final = 64


class Counted(NamedTuple):
    """One record: whose it is, when, and what the book is for."""

    key: bytes
    time: int
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0


def key_of(name: str) -> bytes:
    """The key of a name: names are of any length, records of one."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_KEY).digest()


class Book:
    """One process's view of a book, as a context in which nobody else counts. One thread at a time."""

    def __init__(self, *, capacity: int = CAPACITY):
        self._capacity = capacity
        with tempfile.TemporaryFile(prefix="aegis-") as file:  # it has no name, and lives as long as its processes
            os.truncate(file.fileno(), _BASE + capacity * _RECORD.size)
            self._file = os.dup(file.fileno())
        self._memory = mmap.mmap(self._file, 0)
        self._at = 0

    def __enter__(self) -> Book:
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN)

    @property
    def origin(self) -> int:
        """What `begin` was told first of all."""
        origin: int = _HEADER.unpack_from(self._memory)[1]
        return origin

    def begin(self, origin: int) -> None:
        """Note where the log ended when the first process began to count; a later word changes nothing."""
        written, before = _HEADER.unpack_from(self._memory)
        if not before:
            _HEADER.pack_into(self._memory, 0, written, origin)

    def others(self) -> Iterator[Counted]:
        """What other processes wrote since the last look, in its order."""
        written: int = _HEADER.unpack_from(self._memory)[0]
        for number in range(max(self._at, written - self._capacity), written):
            yield Counted._make(_RECORD.unpack_from(self._memory, self._place(number)))
        self._at = written

    def write(self, record: Counted) -> None:
        """Add one record; `others` were taken up before. A death in the middle leaves what was there before."""
        written, origin = _HEADER.unpack_from(self._memory)
        _RECORD.pack_into(self._memory, self._place(written), *record)
        _HEADER.pack_into(self._memory, 0, written + 1, origin)
        self._at = written + 1

    def _place(self, number: int) -> int:
        return _BASE + number % self._capacity * _RECORD.size


class Books:
    """The books of one gateway, made by the parent of its processes: calls, their bytes, loops, and who wrote which
    leaves of the log."""

    def __init__(self) -> None:
        self.calls = Book()
        self.sizes = Book()
        self.loops = Book()
        self.leaves = Book()
