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
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from aegis.errors import StoreBusy, StoreCorrupt, StoreUnavailable
from aegis.stores.sqlite.schema import SCHEMA_VERSION

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
