"""Compiled databases on disk, so that a start takes milliseconds.

A database is machine state that the engine trusts blindly. It is therefore read only from a folder
and a file that belong to this user and that nobody else can write, and only if its digest is right;
everything else counts as absent. The folder keeps the files that were used last.

What was compiled when the package was built lies in it (`_data/compiled`) and is trusted as its code is. The engine
itself refuses a database of another version or of a processor with more to offer; then it is compiled here.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import platform
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

from aegis._version import __version__
from aegis.core.json import unpack

_File = TypeVar("_File")

_MAGIC: Final = b"aegis-patterns-1\n"
_DIGEST_BYTES: Final = 32
_MAX_BYTES: Final = 268_435_456  # a larger file is none of ours
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_MOST_KEPT: Final = 64  # files, of which a set of rules has about ten; each of some megabytes
_USED_ANEW: Final = 3_600.0  # seconds after which a use is written down again, and a file half written is left over
_SUFFIX: Final = ".db"
_COMPILED: Final = Path(__file__).resolve().parents[2] / "_data" / "compiled"
ANY_MACHINE: Final = ""  # names what was compiled when the package was built
_LONGEST_WAIT: Final = 60.0  # seconds for which another process may compile: one that is stopped stops no other
_PAUSE: Final = 0.05  # seconds between two looks


def default_cache_folder() -> Path:
    """The folder for compiled rules: under `XDG_CACHE_HOME`, or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "aegis" / "patterns"


def load_shipped(identity: Sequence[str]) -> bytes | None:
    """The bytes for `identity` that the package brings, if it does."""
    try:
        with (_COMPILED / _name(identity, ANY_MACHINE)).open("rb") as file:
            return _body(file, identity)
    except OSError:
        return None


def load_cached(folder: Path, identity: Sequence[str]) -> bytes | None:
    """The stored bytes for `identity`, or `None` where there are none that can be trusted."""
    path = folder / _name(identity)
    try:
        if not _private(folder.stat()):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or not _private(status) or status.st_size > _MAX_BYTES:
            return None
        if time.time() - status.st_mtime > _USED_ANEW:
            with contextlib.suppress(OSError):  # a file system that cannot be written: nothing is removed there either
                os.utime(file.fileno())
        return _body(file, identity)


def _body(file: BinaryIO, identity: Sequence[str]) -> bytes | None:
    """What stands behind the digest, where that is right: megabytes, which are read and hashed where they lie."""
    magic, digest, body = file.read(len(_MAGIC)), file.read(_DIGEST_BYTES), file.read()
    return body if magic == _MAGIC and hmac.compare_digest(digest, _digest(identity, body)) else None


def written_as(module: Path) -> str:
    """The text of a module that reads data; the version of the package where it comes without its sources."""
    try:
        return module.read_text(encoding="utf-8")
    except OSError:
        return __version__


def load_files(
    folder: Path, kind: str, reader: Path, kept: type[_File], check: Callable[[str, str], _File], *, cache: Path | None
) -> tuple[_File, ...]:
    """Every YAML file of a folder of data, checked; what was checked before is taken from `cache`.

    `reader` is the module that checks: another one checks anew. Raises what `check` raises, for the first wrong file.
    """
    texts = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))]
    identity = (kind, written_as(reader), *(word for text in texts for word in text))
    body = None if cache is None else load_cached(cache, identity) or load_shipped(identity)
    if body is not None:
        with contextlib.suppress(msgspec.DecodeError):  # of another version: read anew
            return unpack(body, tuple[kept, ...])  # type: ignore[valid-type]
    files = tuple(check(name, text) for name, text in texts)
    if cache is not None:
        store_cached(cache, identity, msgspec.msgpack.encode(files))
    return files


def store_cached(folder: Path, identity: Sequence[str], body: bytes) -> None:
    """Store `body` for `identity`, atomically; a folder that cannot be used is left alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _private(folder.stat()):
            return
        descriptor, name = tempfile.mkstemp(dir=folder)
    except OSError:
        return
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC + _digest(identity, body))
            file.write(body)
        Path(name).replace(folder / _name(identity))
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
    _tidy(folder)


def _tidy(folder: Path) -> None:
    """Remove all but the files that were used last, and what a process that was killed left half written.

    Who reads a file that is removed reads on; who comes later compiles again.
    """
    found: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):  # another process removed it
                if entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, Path(entry.path)))
    found.sort(reverse=True)
    whole = [path for _, path in found if path.suffix == _SUFFIX]
    half = [path for used, path in found if path.suffix != _SUFFIX and time.time() - used > _USED_ANEW]
    for path in (*whole[_MOST_KEPT:], *half):
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def compiling(folder: Path | None) -> Iterator[None]:
    """Hold the folder while compiling for it, so that processes that start together do not all compile the same.

    Whoever waited looks into the folder again. It is no condition: after a minute, or without a folder of one's
    own, everybody compiles for himself.
    """
    descriptor = -1 if folder is None else _opened(folder)
    if descriptor < 0:
        yield
        return
    try:
        end = time.monotonic() + _LONGEST_WAIT
        while not _locked(descriptor) and time.monotonic() < end:
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)


def _opened(folder: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _private(status: os.stat_result) -> bool:
    return status.st_uid == os.getuid() and not status.st_mode & _OTHERS_WRITE


def _digest(identity: Sequence[str], body: bytes) -> bytes:
    digest = hashlib.sha256("\0".join(identity).encode() + b"\0")
    digest.update(body)
    return digest.digest()


def _machine() -> str:
    return f"{platform.machine()} {platform.node()}"


def _name(identity: Sequence[str], machine: str | None = None) -> str:
    machine = _machine() if machine is None else machine
    return hashlib.sha256("\0".join((machine, *identity)).encode()).hexdigest()[:32] + _SUFFIX
