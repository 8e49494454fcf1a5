"""The high-water mark of a home: the longest log that its processes saw, signed, in a file beside the store.

Who writes the store alone cannot put the whole of it back, exchange it for another one or take it away without
the next opening seeing that. The mark is written every `EVERY` receipts and at the end of a process, and never
goes back; a process that was killed leaves one that is that much behind.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from aegis.core.canonical import canonical_record
from aegis.core.ed25519 import verify
from aegis.core.json import decode
from aegis.core.ports import Head, Reader
from aegis.errors import SignatureInvalid, StoreCorrupt
from aegis.keys.keyring import Ed25519Signer
from aegis.log.merkle import Frontier, root_at

NAME: Final = "log.mark"
EVERY: Final = 256  # receipts, or changes of documents, that a killed process may leave unmarked
BYTES: Final = 512  # of the file; a mark is some 400 of them
_DOMAIN: Final = b"aegis/high-water-mark/v1\0"

_log = logging.getLogger("aegis.store")


class Mark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a home knows of its log: its name, size, root (hex), last time, and how often documents had changed."""

    v: Literal[1] = 1
    log: str
    size: int
    root: str
    time: int
    documents: int
    kid: str
    signature: str = ""

    def message(self) -> bytes:
        """Give what is signed."""
        members = {name: value for name, value in msgspec.structs.asdict(self).items() if name != "signature"}
        return _DOMAIN + canonical_record(members)

    def holds(self, public: bytes) -> bool:
        """Tell whether the key `public` signed this."""
        try:
            verify(public, bytes.fromhex(self.signature), self.message())
        except (SignatureInvalid, ValueError):
            return False
        return True


class HighWater:
    """The mark in the folder `home`, signed by what `signer` answers at the time."""

    def __init__(self, home: Path, signer: Callable[[], Ed25519Signer]):
        self._home = home
        self._path = home / NAME
        self._signer = signer
        self._size = 0
        self._documents = 0
        self.log = ""

    def read(self) -> Mark | None:
        """Read the mark as it stands, of which nothing is verified; `None` where there is none.

        Raises `StoreCorrupt` for what is no mark.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreCorrupt(f"the mark of the log cannot be read: {error.strerror}") from error
        if not data:  # a power cut took what was being written
            return None
        try:
            return decode(data, Mark)
        except msgspec.DecodeError as error:
            raise StoreCorrupt("the mark of the log is malformed") from error

    def committed(self, head: Head, documents: int) -> None:
        """Take up the end of the log; writes the mark where it is due."""
        if head.size >= self._size + EVERY or documents >= self._documents + EVERY:
            self.write(head, documents)

    def write(self, head: Head, documents: int, *, anyhow: bool = False) -> None:
        """Write the mark where it is later than what stands there, or `anyhow`; a disk that fails leaves it behind."""
        self._size, self._documents = head.size, documents
        signer = self._signer()
        mark = Mark(
            log=self.log,
            size=head.size,
            root=Frontier.decode(head.frontier).root().hex(),
            time=head.time,
            documents=documents,
            kid=signer.kid,
        )
        mark = msgspec.structs.replace(mark, signature=signer.sign(mark.message()).hex())
        try:
            self._replace(mark, anyhow=anyhow)
        except (OSError, StoreCorrupt) as error:
            _log.warning("the mark of the log was not written", extra={"error": str(error)})

    def _replace(self, mark: Mark, *, anyhow: bool) -> None:
        descriptor = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX if anyhow else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # another process of this home writes one at this moment
                return
            if not anyhow:
                stood = self.read()
                if stood is not None and (stood.size, stood.documents) >= (mark.size, mark.documents):
                    return
            # In place, and one sector: a rename would make the file system flush, and a torn sector is none.
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, msgspec.json.encode(mark).ljust(BYTES - 1) + b"\n", 0)
            finally:
                os.close(file)
        finally:
            os.close(descriptor)


def against(mark: Mark, reader: Reader, *, log: str) -> str | None:
    """Tell what of the log behind `reader` contradicts the mark, in words; `None` where nothing does.

    `log` is the name of the store's log, empty where it has none.
    """
    size = reader.head().size
    if not log:
        return f"the log is gone: this home saw one of {mark.size} receipts"
    if log != mark.log:
        return "the log is another one than this home's"
    if size < mark.size:
        return f"the log is older than this home: it has {size} receipts, and had {mark.size}"
    try:
        same = root_at(mark.size, reader).hex() == mark.root
    except StoreCorrupt:  # leaves are missing
        same = False
    if not same:
        return f"the log has another history than this home saw up to receipt {mark.size}"
    return None
