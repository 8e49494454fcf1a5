"""The redo file: what was acknowledged and stands in no commit of SQLite yet.

One frame for each group of leaves, written in place and flushed once. SQLite takes many frames in one
commit of its own; afterwards the file is written again from its start. Whatever a crash leaves here is
put into the log when it is opened next.

A frame is its length and its CRC-32, four bytes each, then MessagePack: the schema version, the size and
the last leaf hash of the log before and after it, the rows of its leaves, of its tree nodes and of the
documents that were put with them, and the seal of the head after it. A frame counts where it continues
the log exactly; what was written before, or torn, does not.

The file is also the lock by which processes know of each other. All that have the store open hold it
shared; who writes frames holds it alone. With two of them on one store there are no frames, and the
order of commits is SQLite's. The lock belongs to the open file (fcntl(2), "open file description
locks"), so that two stores of one process count as two.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from aegis.core.ports import Head
from aegis.errors import StoreBusy, StoreCorrupt, StoreUnavailable
from aegis.store.sqlite.files import SCHEMA_VERSION
from aegis.store.sqlite.writer import Held, SqliteTransaction

CAPACITY: Final = 1_048_576  # bytes; their blocks exist beforehand, so that a flush writes no metadata
JOIN_S: Final = 2.0  # how long an opening process waits for one that writes frames; its commits come far sooner
_POLL_S: Final = 0.0005
_HEADER: Final = struct.Struct(">II")
_FLOCK: Final = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux
_SET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_HELD: Final = (errno.EAGAIN, errno.EACCES)
_BLANK: Final = bytes(CAPACITY)

_encode = msgspec.msgpack.Encoder().encode
_sync = getattr(os, "fdatasync", os.fsync)


class Frame(Struct, frozen=True, array_like=True):
    """Leaves that were acknowledged together, and the documents that were put with them.

    `size` and `leaf` say where they continue the log, `end` and `last` where they end it.
    """

    size: int
    leaf: bytes
    end: int
    last: bytes
    leaves: list[tuple[Any, ...]]
    nodes: list[tuple[Any, ...]]
    schema: int = SCHEMA_VERSION
    documents: list[tuple[Any, ...]] = []
    seal: bytes = b""


_decode = msgspec.msgpack.Decoder(Frame).decode


class RedoFile:
    """The redo file of the store at `path`. Not safe for threads: the store's lock is held around it."""

    def __init__(self, path: Path, *, flushes: bool):
        self._name = f"{path}-redo"
        self._flushes = flushes
        self._descriptor: int | None = None
        self._end = 0
        self._alone = self._is_written = False
        self._usable = _SET_LOCK is not None
        self._joining = threading.Lock()

    def join(self) -> None:
        """Hold the file shared; safe for threads. Raises `StoreBusy` where others write frames for too long."""
        with self._joining:
            if self._descriptor is not None:
                return
            descriptor, until = self._open(), time.monotonic() + JOIN_S
            while self._usable and not self._lock(descriptor, fcntl.F_RDLCK):
                if time.monotonic() >= until:
                    os.close(descriptor)
                    raise StoreBusy("the store is held by another process")
                time.sleep(_POLL_S)
            self._descriptor = descriptor

    @property
    def is_joined(self) -> bool:
        """Whether the lock is held, shared or alone."""
        return self._descriptor is not None

    def write(self, frame: Frame) -> bool:
        """Whether the frame is as durable as asked. `OSError` is raised once: then the file is used no more."""
        descriptor = self._descriptor
        if descriptor is None or not self._usable:
            return False
        try:
            return self._write(descriptor, frame)
        except OSError:
            self._usable = False  # what a failed flush left behind is not known: SQLite's commits are enough
            with suppress(OSError):
                os.pwrite(descriptor, _BLANK[: _HEADER.size], self._end)
            raise

    def frames(self) -> Iterator[Frame]:
        """The frames from the start of the file, as far as each continues the one before.

        Of its own frames a process reads those that it acknowledged. Raises `StoreCorrupt` for a whole
        frame that is none.
        """
        if self._descriptor is None:
            return
        data, at, before = os.pread(self._descriptor, self._end if self._alone else CAPACITY, 0), 0, None
        while at + _HEADER.size <= len(data):
            length, checksum = _HEADER.unpack_from(data, at)
            self._is_written = self._is_written or bool(length)
            at += _HEADER.size
            body = data[at : at + length]
            if not length or len(body) < length or zlib.crc32(body) != checksum:
                return
            at += length
            try:
                frame = _decode(body)
            except msgspec.DecodeError as error:
                raise StoreCorrupt("the redo file holds what is no frame of this version") from error
            if before is not None and (frame.size, frame.leaf) != (before.end, before.last):
                return
            yield frame
            before = frame

    def restart(self) -> None:
        """Every frame stands in a commit of SQLite: begin anew, and let others in."""
        descriptor = self._descriptor
        if descriptor is None:
            return
        self._end = 0
        if (
            self._is_written
        ):  # saves whoever opens the store next from comparing; frames of the past do not count anyway
            with suppress(OSError):
                os.pwrite(descriptor, _BLANK[: _HEADER.size], 0)
                self._is_written = False
        if self._alone and self._lock(descriptor, fcntl.F_RDLCK):
            self._alone = False

    def scrub(self) -> None:
        """Overwrite the whole file: what is erased from the store must not stay here. Raises `OSError`."""
        if self._descriptor is not None and os.fstat(self._descriptor).st_size:
            _blank(self._descriptor)

    def close(self) -> None:
        """Let the lock go. In a forked child this leaves the parent's lock alone."""
        descriptor, self._descriptor, self._alone = self._descriptor, None, False
        if descriptor is not None:
            os.close(descriptor)

    def _write(self, descriptor: int, frame: Frame) -> bool:
        data = _encode(frame)
        data = _HEADER.pack(len(data), zlib.crc32(data)) + data
        if self._end + len(data) > CAPACITY or not (self._alone or self._take(descriptor)):
            return False
        if not os.fstat(descriptor).st_nlink:  # removed: nobody would find what is written here
            self._usable = False
            return False
        self._is_written = True
        if os.pwrite(descriptor, data, self._end) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._flushes:
            _sync(descriptor)
        self._end += len(data)
        return True

    def _take(self, descriptor: int) -> bool:
        """Whether this process is the only one that has the store open, and the file is ready."""
        if not self._lock(descriptor, fcntl.F_WRLCK):
            return False
        self._alone = True
        if os.fstat(descriptor).st_size < CAPACITY:
            _blank(descriptor)
        return True

    def _open(self) -> int:
        try:
            return os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"the store cannot be opened: {error.strerror}") from error

    def _lock(self, descriptor: int, kind: int) -> bool:
        """Whether the lock is now held as `kind`; a lock that was held before stays where it is not."""
        if _SET_LOCK is None:
            return False
        try:
            fcntl.fcntl(descriptor, _SET_LOCK, _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            if error.errno not in _HELD:
                self._usable = False  # a file system without such locks: then nobody there writes frames
            return False
        return True


def _blank(descriptor: int) -> None:
    """Fill the file with zeros, on the disk; raises `OSError`."""
    if os.pwrite(descriptor, _BLANK, 0) < CAPACITY:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(descriptor)


# Leaves that are acknowledged before SQLite commits them.
#
# A commit of SQLite copies every page that a leaf changes and sums it up. Where one process has the store to
# itself, a group of leaves and of documents put with them is written to the redo file instead, and the transaction
# of SQLite stays open for the next ones. It is committed after `MOST` groups, `LAG_S` after the first of them,
# before anybody reads, and before anything else is written. Where it is lost, by a fault or a crash, the next
# transaction begins with what the redo file holds.

MOST: Final = 64  # groups in one commit of SQLite: bounds what has to be put back after a crash
LAG_S: Final = 0.05  # how long a group may stand in the redo file alone

_log = logging.getLogger("aegis.store")


class Ahead:
    """What stands between the redo file and SQLite for one store; the store's lock is held around it.

    `head` is the end of the log while a transaction stays open with acknowledged groups in it. `owes` says
    that such a transaction was lost: the redo file has what SQLite lacks. `held` are the documents among what
    was acknowledged, the newest of each: they are written when it is committed. `settle` commits what waits,
    and says whether there will be more.
    """

    def __init__(self, path: Path, *, flushes: bool, settle: Callable[[], bool]):
        self.redo = RedoFile(path, flushes=flushes)
        self.head: Head | None = None
        self.owes = False
        self.held: Held = {}
        self.written = 0
        self._groups = 0
        self._settle = weakref.WeakMethod(settle)
        self._due = threading.Event()
        self._ended = threading.Event()  # whether no thread follows
        self._ended.set()

    @property
    def waits(self) -> bool:
        """Whether SQLite has not committed everything that was acknowledged."""
        return self.head is not None or self.owes

    def take(self, transaction: SqliteTransaction) -> bool:
        """Whether the redo file acknowledges the leaves of `transaction`; otherwise SQLite has to commit them."""
        before, after = transaction.before, transaction.head()
        if before is None or not transaction.only_appended or self._groups >= MOST - 1 or not self._is_followed():
            return False
        frame = Frame(
            size=before.size,
            leaf=before.leaf,
            end=after.size,
            last=after.leaf,
            leaves=transaction.leaves,
            nodes=transaction.nodes,
            documents=list(transaction.puts.values()),
            seal=after.seal,
        )
        try:
            if not self.redo.write(frame):
                return False
        except OSError as error:
            _log.warning("the redo file of the store fails, and is used no more", extra={"error": error.strerror})
            return False
        self._groups += 1
        self.written += transaction.written
        self.held.update(transaction.puts)
        if self.head is None:
            self._due.set()
        self.head = after
        return True

    def committed(self) -> None:
        """SQLite holds everything."""
        self.head, self.owes, self.written, self._groups = None, False, 0, 0
        self.held = {}
        self.redo.restart()

    def lost(self) -> None:
        """The open transaction is gone, and with it what only the redo file has now."""
        self.owes = self.owes or self.head is not None
        self.head, self.written, self._groups, self.held = None, 0, 0, {}
        if not self.owes:
            self.redo.restart()

    def put_back(self, transaction: SqliteTransaction) -> None:
        """Write into `transaction` what the redo file holds beyond the end of the log."""
        head = transaction.head()
        for frame in self.redo.frames():
            if frame.end <= head.size:
                continue
            if (frame.size, frame.leaf) != (head.size, head.leaf):
                # An older file was put in place, or a power cut took what `durability: os` never flushed.
                _log.warning("the redo file does not continue the log, and is left out", extra={"size": head.size})
                return
            if frame.schema != SCHEMA_VERSION:
                raise StoreUnavailable("another version of Aegis left the store in use: open it once with that one")
            head = transaction.put_back(frame.leaves, frame.nodes, frame.documents, frame.seal)

    def is_left_over(self) -> bool:
        """Whether the redo file holds frames, of whatever age; asked before anything else was done here."""
        return next(self.redo.frames(), None) is not None

    def close(self) -> None:
        """Let the redo file go; what it owes stays in it for whoever opens the store next."""
        self.redo.close()
        self._due.set()

    def _is_followed(self) -> bool:
        """Whether a thread will commit what waits, should nobody else."""
        if self._ended.is_set():
            self._ended.clear()
            follower = threading.Thread(
                target=_follow, args=(self._due, self._ended, self._settle), name="aegis-settle", daemon=True
            )
            try:
                follower.start()
            except RuntimeError:  # the interpreter is ending
                self._ended.set()
                return False
        return True


def _follow(due: threading.Event, ended: threading.Event, settle: weakref.WeakMethod[Callable[[], bool]]) -> None:
    """Commit what waits, `LAG_S` after it is `due`, for as long as the store is there."""
    try:
        while due.wait():
            due.clear()
            time.sleep(LAG_S)
            call = settle()
            if call is None or not call():
                return
            del call
    finally:
        ended.set()
