"""Changing files that belong to other programs: a backup first, the rest kept, the new file whole or not."""

from __future__ import annotations

import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any, Final

from aegis.errors import InvalidCall

BACKUP: Final = ".aegis-backup"
MAX_BYTES: Final = 16_777_216


def read_bytes(path: Path) -> bytes | None:
    """What stands in `path`, or `None` where there is no file; raises `InvalidCall` where it is too much."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) > MAX_BYTES:
        raise InvalidCall(f"`{path}` is too large to be changed")
    return data


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in `path`, or `None` where there is no file; raises `InvalidCall` for anything else."""
    data = read_bytes(path)
    if data is None:
        return None
    if not data.strip():
        return {}
    try:
        value = json.loads(data)
    except ValueError as error:
        hint = "nothing was changed; comments and trailing commas are not JSON"
        raise InvalidCall(f"`{path}` is not JSON", hint=hint) from error
    if not isinstance(value, dict):
        raise InvalidCall(f"`{path}` does not hold an object", hint="nothing was changed")
    return value


def write_json(path: Path, value: dict[str, Any]) -> Path | None:
    """Put `value` into `path` as JSON; the file that stood there is kept under the name that is given back."""
    return write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> Path | None:
    """Put `text` into `path`; the file that stood there is kept under the name that is given back."""
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
    backup = _backed_up(target)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return backup


def _backed_up(path: Path) -> Path | None:
    """A copy of `path` beside it, with the same rights; every change has a backup of its own."""
    if not path.exists():
        return None
    data = path.read_bytes()
    mode = stat.S_IMODE(path.stat().st_mode)
    number = 1
    while True:
        backup = path.with_name(f"{path.name}{BACKUP}-{number}")
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return backup
