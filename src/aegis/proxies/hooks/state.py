"""What one hook process has to leave for the next: files in the home, one a call, gone when they are used."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from aegis.errors import InvalidCall

Kind = Literal["made", "held"]
MAX_AGE_S: Final = 7 * 86_400  # as long as an approval can wait; older files belong to calls that never ended
_SWEEP_ONE_IN: Final = 50


class HookState:
    """The files of one home."""

    def __init__(self, home: Path):
        self._folder = home / "hooks"

    def put(self, kind: Kind, key: str, value: dict[str, Any]) -> None:
        """Leave `value` for whoever asks for `key`; of the same key several are kept, oldest first."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{kind}-{_name(key)}-{time.time_ns():020d}-{secrets.token_hex(4)}.json"
        partial = path.with_suffix(".new")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(orjson.dumps(value))
        partial.replace(path)
        if secrets.randbelow(_SWEEP_ONE_IN) == 0:
            self._sweep()

    def find(self, kind: Kind, key: str) -> dict[str, Any] | None:
        """The oldest value that was left for `key`, which stays."""
        paths = self._paths(kind, key)
        return _read(paths[0]) if paths else None

    def take(self, kind: Kind, key: str) -> dict[str, Any] | None:
        """The oldest value that was left for `key`; of several processes that ask, one gets it."""
        for path in self._paths(kind, key):
            taken = path.with_suffix(f".{secrets.token_hex(4)}")
            try:
                path.rename(taken)
            except FileNotFoundError:
                continue
            value = _read(taken)
            taken.unlink()
            return value
        return None

    def _paths(self, kind: Kind, key: str) -> list[Path]:
        return sorted(self._folder.glob(f"{kind}-{_name(key)}-*.json"))

    def _sweep(self) -> None:
        before = time.time() - MAX_AGE_S
        for path in self._folder.iterdir():
            if path.stat(follow_symlinks=False).st_mtime < before:
                path.unlink(missing_ok=True)


def _name(key: str) -> str:
    """A name that no key can steer out of the folder."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _read(path: Path) -> dict[str, Any]:
    value = orjson.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise InvalidCall("a file of the hooks' state is damaged", hint=f"remove `{path}`")
    return value
