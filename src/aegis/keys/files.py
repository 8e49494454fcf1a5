"""Private keys on disk: one file, one key, one purpose, readable by its owner alone.

A file is written whole under another name and then linked into place, so that of two processes that
make the same key one wins and both use the winner's.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import orjson

from aegis.errors import KeyFileError

Purpose = Literal["log", "receipt", "permit", "payload", "mission", "attestation", "holder"]
KEY_BYTES: Final = 32
_MODE: Final = 0o600


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyFile:
    """One secret of 32 bytes, and what it is for. `agent` is empty but for agents' receipt keys."""

    purpose: Purpose
    agent: str
    secret: bytes = field(repr=False)


def path_for(folder: Path, purpose: Purpose, agent: str = "") -> Path:
    """Tell where the current key of a purpose lives; an agent's name never becomes a path."""
    if not agent:
        return folder / f"{purpose}.key"
    return folder / "agents" / f"{hashlib.sha256(agent.encode()).hexdigest()}.key"


def previous_path(path: Path) -> Path:
    """Tell where a key waits, while it is replaced, for the log to know its successor."""
    return path.with_name(f"{path.name}.previous")


def replaced(folder: Path) -> list[tuple[Path, Purpose, str]]:
    """List every current key below `folder` whose replacement was not completed, with what it is for."""
    found: list[tuple[Path, Purpose, str]] = []
    for waiting in sorted((*folder.glob("*.key.previous"), *folder.glob("agents/*.key.previous"))):
        body = orjson.loads(waiting.read_bytes())
        found.append((waiting.with_name(waiting.name.removesuffix(".previous")), body["purpose"], body["agent"]))
    return found


def set_aside(path: Path) -> None:
    """Keep the current key beside its place until `settle`: a crash in between loses neither. Raises `KeyFileError`."""
    waiting = previous_path(path)
    try:
        waiting.unlink(missing_ok=True)
        os.link(path, waiting)
        _sync_folder(path.parent)
    except OSError as error:
        raise KeyFileError(f"the key file `{path}` cannot be kept: {error.strerror}") from error


def settle(path: Path, *, completed: bool) -> None:
    """End a replacement: the key that was set aside goes, or where it was not `completed` takes its place again."""
    waiting = previous_path(path)
    try:
        if completed:
            waiting.unlink(missing_ok=True)
        elif waiting.exists():
            waiting.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise KeyFileError(f"the key file `{path}` cannot be written: {error.strerror}") from error


def load_or_create(folder: Path, purpose: Purpose, agent: str = "") -> KeyFile:
    """Load the current key of a purpose, made where there is none. Raises `KeyFileError`."""
    path = path_for(folder, purpose, agent)
    if not path.exists():
        create(folder, purpose, agent)
    return load(path, purpose, agent)


def load(path: Path, purpose: Purpose, agent: str = "") -> KeyFile:
    """Load the key in `path`; raises `KeyFileError` where others can read it or it is for something else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise KeyFileError(f"the key file `{path}` cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077:
            raise KeyFileError(f"the key file `{path}` can be read by others; chmod 600 it, and rotate the key")
        data = file.read(65_536)
    try:
        body = orjson.loads(data)
        secret = base64.b64decode(body["secret"], validate=True)
        found = (body["purpose"], body["agent"])
    except (ValueError, KeyError, TypeError) as error:
        raise KeyFileError(f"the key file `{path}` does not hold a key") from error
    if found != (purpose, agent) or len(secret) != KEY_BYTES:
        raise KeyFileError(f"the key file `{path}` holds a key for something else")
    return KeyFile(purpose=purpose, agent=agent, secret=secret)


def create(folder: Path, purpose: Purpose, agent: str = "", *, replace: bool = False) -> None:
    """Write a new key; where one exists it stays, unless it is to be replaced. Raises `KeyFileError`."""
    path = path_for(folder, purpose, agent)
    fresh = path.with_name(f".{secrets.token_hex(8)}.new")
    body = orjson.dumps(
        {"purpose": purpose, "agent": agent, "secret": base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}
    )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(descriptor)
        try:
            if replace:
                fresh.replace(path)
            else:
                _link(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise KeyFileError(f"the key file `{path}` cannot be written: {error.strerror}") from error


def _link(fresh: Path, path: Path) -> None:
    try:
        os.link(fresh, path)
    except FileExistsError:
        return  # another process made this key first; its key is the one


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
