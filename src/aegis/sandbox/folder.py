"""What a folder holds, as a digest: every path with its kind, mode and content, bounded.

Content that was hashed once is not read again while its inode, size and change time are the same: a
program cannot set a change time. A file that changed within the last moments is hashed each time,
because a clock that ticks slowly would hide a second change (the rule of git's racy index).
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from aegis.errors import WorkspaceError

MAX_FILES: Final = 100_000  # paths in one folder: bounds the time of one digest
MAX_BYTES: Final = 1_073_741_824  # bytes read for one digest
MAX_DEPTH: Final = 128
_REMEMBERED: Final = 200_000  # files whose content is known
_RACY_NS: Final = 2_000_000_000
_CHUNK: Final = 1_048_576

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
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


def read_folder(folder: str, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES) -> Listing:
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
        while data := os.read(descriptor, _CHUNK):
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
