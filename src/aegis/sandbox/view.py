"""A private copy of a workspace that a sandboxed run may change, and what it changed.

The copy lies in memory where there is room (`/dev/shm`), otherwise beside other temporary files; the
workspace itself is only ever read. Links are copied as links and lead nowhere inside; sockets, pipes
and devices are left out.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from aegis.errors import WorkspaceError

# What a folder holds, as a digest: every path with its kind, mode and content, bounded.
#
# Content that was hashed once is not read again while its inode, size and change time are the same: a program
# cannot set a change time. A file that changed within the last moments is hashed each time, because a clock that
# ticks slowly would hide a second change (the rule of git's racy index).

FOLDER_FILES: Final = 100_000  # paths in one folder: bounds the time of one digest
FOLDER_BYTES: Final = 1_073_741_824  # bytes read for one digest
MAX_DEPTH: Final = 128
_REMEMBERED: Final = 200_000  # files whose content is known
_RACY_NS: Final = 2_000_000_000
_FOLDER_CHUNK: Final = 1_048_576

FileKind = Literal["file", "folder", "link", "other"]

_KEY = tuple[int, int, int, int]
_known: OrderedDict[_KEY, bytes] = OrderedDict()
_lock = threading.Lock()


class Item(NamedTuple):
    """One path: `content` is the hash of a file, or the target of a link."""

    kind: FileKind
    mode: int
    size: int
    content: bytes


class Listing(Struct, frozen=True, kw_only=True):
    """Everything below one folder, by relative path. `special` are sockets, pipes and devices: they lead out."""

    items: Mapping[str, Item]
    special: tuple[str, ...]

    @property
    def digest(self) -> str:
        """`sha-256:` over every path in order with its kind, mode and content."""
        whole = hashlib.sha256()
        for path in sorted(self.items):
            item = self.items[path]
            name = path.encode("utf-8", "surrogateescape")
            head = f"{len(name)} {item.kind} {item.mode:o} {item.size} {len(item.content)}\0".encode()
            whole.update(head + name + item.content)
        return "sha-256:" + whole.hexdigest()


def read_folder(folder: str, *, max_files: int = FOLDER_FILES, max_bytes: int = FOLDER_BYTES) -> Listing:
    """What `folder` holds now; no link is followed. Raises `WorkspaceError` beyond a bound or unread."""
    items: dict[str, Item] = {}
    special: list[str] = []
    read = 0
    waiting = [("", 0)]
    while waiting:
        relative, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise WorkspaceError(f"the workspace is nested deeper than {MAX_DEPTH} folders")
        try:
            with os.scandir(os.path.join(folder, relative) if relative else folder) as entries:  # noqa: PTH118
                for entry in entries:
                    path = f"{relative}/{entry.name}" if relative else entry.name
                    seen = entry.stat(follow_symlinks=False)
                    item = _item(entry.path, seen)
                    items[path] = item
                    if item.kind == "folder":
                        waiting.append((path, depth + 1))
                    elif item.kind == "file":
                        read += item.size
                    elif item.kind == "other":
                        special.append(path)
                    if len(items) > max_files:
                        raise WorkspaceError(f"the workspace holds more than {max_files} files")
                    if read > max_bytes:
                        raise WorkspaceError(f"the workspace holds more than {max_bytes} bytes")
        except OSError as error:
            raise WorkspaceError(f"the workspace cannot be read: {os.strerror(error.errno or 0).lower()}") from error
    return Listing(items=items, special=tuple(special))


def _item(path: str, seen: os.stat_result) -> Item:
    mode = stat.S_IMODE(seen.st_mode)
    if stat.S_ISDIR(seen.st_mode):
        return Item("folder", mode, 0, b"")
    if stat.S_ISREG(seen.st_mode):
        return Item("file", mode, seen.st_size, _content(path, seen))
    if stat.S_ISLNK(seen.st_mode):
        return Item("link", 0, 0, os.fsencode(os.readlink(path)))  # noqa: PTH115 - bytes that are no text stay as they are
    return Item("other", mode, 0, b"")


def _content(path: str, seen: os.stat_result) -> bytes:
    key = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_ctime_ns)
    with _lock:
        known = _known.get(key)
    if known is not None:
        return known
    whole = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = os.fstat(descriptor)
        while data := os.read(descriptor, _FOLDER_CHUNK):
            whole.update(data)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    found = whole.digest()
    quiet = time.time_ns() - after.st_ctime_ns > _RACY_NS
    if quiet and key == (before.st_dev, before.st_ino, after.st_size, after.st_ctime_ns):
        with _lock:
            _known[key] = found
            if len(_known) > _REMEMBERED:
                _known.popitem(last=False)
    return found


MAX_FILES: Final = 50_000  # paths copied for one run
MAX_BYTES: Final = 134_217_728  # bytes copied for one run
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a private folder is made in it
_CHUNK: Final = 1_048_576


class FileChange(Struct, frozen=True, kw_only=True):
    """One path that a run created, changed or deleted; sizes in bytes, `None` where there is nothing."""

    path: str
    change: Literal["created", "changed", "deleted"]
    kind: str
    before: int | None
    after: int | None


class View(Struct, frozen=True, kw_only=True):
    """A copy of a workspace: where it lies, and what the workspace held when it was made."""

    folder: str
    original: Listing

    def changes(self) -> list[FileChange]:
        """What is different now, by path; raises `WorkspaceError` where too much is there to be read."""
        now = read_folder(self.folder, max_files=2 * MAX_FILES, max_bytes=4 * MAX_BYTES).items
        before = self.original.items
        found: list[FileChange] = []
        for path in sorted(before.keys() | now.keys()):
            old, new = before.get(path), now.get(path)
            if old is not None and old.kind == "other":
                continue
            if old != new:
                word: Literal["created", "changed", "deleted"]
                word = "created" if old is None else "deleted" if new is None else "changed"
                shown = new or old
                found.append(
                    FileChange(
                        path=path,
                        change=word,
                        kind="" if shown is None else shown.kind,
                        before=None if old is None else old.size,
                        after=None if new is None else new.size,
                    )
                )
        return found


@contextmanager
def copied(workspace: str) -> Iterator[View]:
    """A copy of `workspace`, gone when the block ends.

    Raises `WorkspaceError` where it is too large, cannot be read, or changes while it is copied.
    """
    original = read_folder(workspace, max_files=MAX_FILES, max_bytes=MAX_BYTES)
    size = sum(item.size for item in original.items.values())
    place = tempfile.mkdtemp(prefix="aegis-view-", dir=_place(size, len(original.items)))
    try:
        folder = os.path.join(place, "view")  # noqa: PTH118
        os.mkdir(folder, 0o700)  # noqa: PTH102
        _copy(workspace, folder, original)
        yield View(folder=folder, original=original)
    finally:
        _remove(place)


def _place(size: int, files: int) -> str | None:
    """Memory, where what is copied and as much again fits into half of what is free there."""
    try:
        free = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return None
    needed = 2 * (size + files * 4_096)
    return _SHARED_MEMORY if needed < free.f_bavail * free.f_frsize // 2 and free.f_favail > 2 * files else None


def _copy(workspace: str, folder: str, original: Listing) -> None:
    folders: list[tuple[str, int]] = []
    try:
        for path in sorted(original.items):  # a folder before what lies inside of it
            item = original.items[path]
            target = f"{folder}/{path}"
            if item.kind == "folder":
                os.mkdir(target, 0o700)  # noqa: PTH102
                folders.append((target, item.mode))
            elif item.kind == "link":
                os.symlink(item.content, os.fsencode(target))  # noqa: PTH211 - a target need not be text
            elif item.kind == "file":
                _copy_file(f"{workspace}/{path}", target, item)
        for target, mode in reversed(folders):
            os.chmod(target, mode)  # noqa: PTH101
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise WorkspaceError(f"the workspace could not be copied: {why}") from error


def _copy_file(source: str, target: str, item: Item) -> None:
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        seen = os.fstat(reading)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size != item.size:
            raise WorkspaceError("the workspace changed while it was copied")
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            left = item.size
            while left > 0 and (data := os.read(reading, min(left, _CHUNK))):
                os.write(writing, data)
                left -= len(data)
            os.fchmod(writing, item.mode)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _remove(place: str) -> None:
    """Remove the copy, whatever modes a run gave its folders and however deep it nested them.

    Each folder is moved up before it is looked into: no path grows longer than the system takes.
    """
    folders = [place]
    for folder in folders:
        os.chmod(folder, 0o700)  # noqa: PTH101
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)  # noqa: PTH101 - it is written to when it gets another parent
                folders.append(f"{place}/{len(folders)}.gone")
                os.rename(entry.path, folders[-1])  # noqa: PTH104
            else:
                os.unlink(entry.path)  # noqa: PTH108
    for folder in reversed(folders):
        os.rmdir(folder)  # noqa: PTH106
