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
from typing import Any, Final, Literal

import orjson

from aegis.core.ports import Reader, Search
from aegis.errors import KeyFileError

# Public keys as the log announced them: `keys.json` for verifiers, a JWK set for everybody else.

KEYS_VERSION: Final = 1
_PAGE: Final = 1_000


def public_keys(reader: Reader) -> dict[str, Any]:
    """The `keys.json` document: every key that the log announced, in order, with the indexes it is valid for.

    A key signs leaves from `from` on and, where it was replaced or retired, up to `until`: these are the
    leaves that announce its beginning and its end. What makes the document worth anything is how a
    verifier got it, not what it says.
    """
    log = ""
    keys: dict[str, dict[str, Any]] = {}
    in_force: dict[tuple[str, str], list[str]] = {}
    for index, receipt in _key_receipts(reader):
        log = receipt["log"]
        described, action = receipt["key"], receipt["action"]
        kid = described["kid"]
        of_owner = in_force.setdefault((described["purpose"], described.get("agent", "")), [])
        ended = [kid] if action == "retire" else of_owner[:] if action == "rotate" else []
        for replaced in ended:
            keys[replaced]["until"] = index
            of_owner.remove(replaced)
        if action != "retire":
            keys[kid] = {**described, "from": index}
            of_owner.append(kid)
    return {"v": KEYS_VERSION, "log": log, "keys": list(keys.values())}


def jwks(document: dict[str, Any]) -> dict[str, Any]:
    """The keys of `public_keys` that are in force, as a JWK set (RFC 7517, RFC 8037)."""
    return {
        "keys": [
            {
                "kty": "OKP",
                "crv": "Ed25519",
                "alg": "EdDSA",
                "use": "sig",
                "kid": key["kid"],
                "x": base64.urlsafe_b64encode(base64.b64decode(key["public"])).rstrip(b"=").decode(),
                "purpose": key["purpose"],
                **({"agent": key["agent"]} if "agent" in key else {}),
            }
            for key in document["keys"]
            if "until" not in key
        ]
    }


def _key_receipts(reader: Reader) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    before: int | None = None
    while page := reader.search(Search(kind="key", before=before, limit=_PAGE)):
        found.extend((entry.index, orjson.loads(entry.body)) for entry in page)
        before = page[-1].index
    found.reverse()
    return found


# Secrets that a configuration refers to, as `${env:NAME}` or `file:PATH`, and never holds.

MAX_SECRET_BYTES: Final = 16_384  # a secret becomes a header: bounds what a wrong path can put there
_ENV: Final = "${env:"
_FILE: Final = "file:"


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in memory; it has no text form but `reveal()`."""

    _value: str = field(repr=False)

    def __str__(self) -> str:
        return "<secret>"

    def reveal(self) -> str:
        """The secret itself, for the one place that sends it."""
        return self._value

    def redacted(self, data: bytes) -> bytes:
        """`data` with every occurrence of the secret blotted out."""
        return data.replace(self._value.encode("ascii"), b"[redacted]")


def is_reference(text: str) -> bool:
    """Whether `text` is a well-formed reference to a secret."""
    named = text.startswith(_ENV) and text.endswith("}") and len(text) > len(_ENV) + 1
    return named or (text.startswith(_FILE) and len(text) > len(_FILE))


def check_reference(reference: str) -> str:
    """`reference` where it is well-formed; raises `ValueError` for anything else, a secret itself included."""
    if is_reference(reference):
        return reference
    raise ValueError("a secret is given as `${env:NAME}` or `file:PATH`, never in the file")


def read_secret(reference: str) -> Secret:
    """The secret that a well-formed reference leads to; raises `KeyFileError` where there is none to be had."""
    if reference.startswith(_ENV):
        name = reference[len(_ENV) : -1]
        text, place = os.environ.get(name, ""), f"the environment variable `{name}`"
    else:
        path = Path(reference.removeprefix(_FILE)).expanduser()
        place = f"the file `{path}`"
        try:
            with path.open("rb") as file:
                text = file.read(MAX_SECRET_BYTES + 1).decode("ascii", "replace")
        except OSError as error:
            raise KeyFileError(f"{place} cannot be read: {error.strerror}") from error
    text = text.strip()
    if not text:
        raise KeyFileError(f"{place} holds no secret")
    if len(text) > MAX_SECRET_BYTES or not all("!" <= sign <= "~" for sign in text):
        raise KeyFileError(f"{place} holds something other than visible ASCII, which no header can carry")
    return Secret(text)


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
    """Where the current key of a purpose lives; an agent's name never becomes a path."""
    if not agent:
        return folder / f"{purpose}.key"
    return folder / "agents" / f"{hashlib.sha256(agent.encode()).hexdigest()}.key"


def previous_path(path: Path) -> Path:
    """Where a key waits, while it is replaced, for the log to know its successor."""
    return path.with_name(f"{path.name}.previous")


def replaced(folder: Path) -> list[tuple[Path, Purpose, str]]:
    """Every current key below `folder` whose replacement was not completed, with what it is for."""
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
    """The current key of a purpose, made where there is none. Raises `KeyFileError`."""
    path = path_for(folder, purpose, agent)
    if not path.exists():
        create(folder, purpose, agent)
    return load(path, purpose, agent)


def load(path: Path, purpose: Purpose, agent: str = "") -> KeyFile:
    """The key in `path`; raises `KeyFileError` where others can read it or it is for something else."""
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
