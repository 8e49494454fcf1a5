"""What a tree of processes uses, as `/proc` shows it at one moment."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
MAX_SEEN: Final = 4_096  # processes counted at one look: a fork bomb must not keep the watcher busy
_ENTRY: Final = 1_024  # bytes that the kernel keeps for a name and its inode: a million empty files are not nothing


def usage(root: int) -> tuple[int, int]:
    """How many processes descend from `root`, itself included, and how many bytes of memory are theirs alone."""
    count, memory = 0, 0
    waiting = [root]
    while waiting and count < MAX_SEEN:
        process = Path("/proc", str(waiting.pop()))
        with suppress(OSError, ValueError, IndexError):  # a process that ended meanwhile uses nothing
            fields = (process / "statm").read_text().split()
            memory += (int(fields[1]) - int(fields[2])) * _PAGE
            count += 1
            for task in (process / "task").iterdir():
                waiting.extend(int(child) for child in (task / "children").read_text().split())
    return count, memory


def size_of(folder: str, bound: int) -> int:
    """How many bytes the files below `folder` take, names included; counting stops beyond `bound`.

    A folder that is there and cannot be looked into, by its mode or the length of its path, is beyond every bound.
    """
    total = 0
    waiting = [folder]
    while waiting and total <= bound:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    total += _ENTRY
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        with suppress(FileNotFoundError):
                            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except (FileNotFoundError, NotADirectoryError):
            continue  # it is gone
        except OSError:
            return bound + 1
    return total
