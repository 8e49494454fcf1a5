"""The files of an export: written beside their place and put there whole, read in blocks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

BLOCK_BYTES: Final = 1_048_576
MAX_SMALL: Final = 67_108_864  # a checkpoint or keys.json beyond this is none


def write_file(folder: Path, name: str, blocks: Iterable[bytes], *, mode: int = 0o666) -> None:
    """Write `blocks` durably as `name`; nobody ever sees half of it."""
    fresh = folder / f".{name}.new"
    try:
        fresh.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(fresh, flags, mode), "wb") as file:
            for block in blocks:
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / name)
    finally:
        fresh.unlink(missing_ok=True)


def read_blocks(path: Path) -> Iterator[bytes]:
    """The content of `path` in blocks, in bounded memory."""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def read_small(path: Path) -> bytes:
    """The content of a small file, bounded."""
    with path.open("rb") as file:
        return file.read(MAX_SMALL)
