"""The keys of one deployment, each pinned to its one purpose and kept in a file of its own.

log       signs checkpoints and endorses every other key in the log
receipt   signs receipts: one for the gateway itself, one for each agent
permit    signs permits
payload   wraps the key of each stored payload; from it that which seals the store's documents is derived
mission   signs missions that this deployment issues
attestation  signs session attestations and projections of receipts
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from aegis.core.canonical import kid_of
from aegis.core.ed25519 import SigningKey
from aegis.core.receipt import GATEWAY_SIGNER, LOG_SIGNER, PREVIOUS_LOG_SIGNER, agent_of_signer
from aegis.errors import KeyFileError, StoreCorrupt

# Private keys on disk: one file, one key, one purpose, readable by its owner alone.
#
# A file is written whole under another name and then linked into place, so that of two processes that make the same
# key one wins and both use the winner's.

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


# Payloads at rest: each under its own key (AES-256-GCM), which one master key wraps.
#
# Deleting the wrapped key and the salt erases a payload for good; the log commits to it and still verifies. A key
# seals one payload, so its nonce may be constant.

_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32
_ONCE: Final = bytes(_NONCE_BYTES)
_WRAP: Final = b"aegis/payload-key/v1"
_BODY: Final = b"aegis/payload/v1"


class PayloadBox:
    """Seals and opens payloads under one master key."""

    def __init__(self, master: bytes):
        self._master = AESGCM(master)

    def seal(self, payload: bytes) -> tuple[bytes, bytes]:
        """Seal a payload: its wrapped key, and its body."""
        fresh = os.urandom(_KEY_BYTES + _NONCE_BYTES)
        key, nonce = fresh[:_KEY_BYTES], fresh[_KEY_BYTES:]
        body = AESGCM(key).encrypt(_ONCE, payload, _BODY)
        return nonce + self._master.encrypt(nonce, key, _WRAP), body

    def open(self, key: bytes, body: bytes) -> bytes:
        """Open the payload; raises `StoreCorrupt` where key or body were changed or belong to another deployment."""
        try:
            inner = self._master.decrypt(key[:_NONCE_BYTES], key[_NONCE_BYTES:], _WRAP)
            return AESGCM(inner).decrypt(_ONCE, body, _BODY)
        except (InvalidTag, ValueError) as error:
            raise StoreCorrupt("a stored payload does not open under the keys of this deployment") from error


class Ed25519Signer(SigningKey):
    """One Ed25519 private key and its one purpose; `kid` and `public` are derived from its public half."""

    __slots__ = ("agent", "kid", "purpose")

    def __init__(self, secret: bytes, purpose: Purpose, agent: str = ""):
        super().__init__(secret)
        self.kid = kid_of(self.public)
        self.purpose = purpose
        self.agent = agent

    def describe(self) -> dict[str, str]:
        """Describe the public half, as key receipts and `keys.json` carry it."""
        described = {
            "kid": self.kid,
            "purpose": self.purpose,
            "public": base64.b64encode(self.public).decode(),
        }
        if self.agent:
            described["agent"] = self.agent
        return described


def public_below(folder: Path) -> dict[bytes, str]:
    """List the public halves of all key files below a folder, replaced ones included, with what each is for."""
    found: dict[bytes, str] = {}
    for path in sorted((*folder.glob("*.key*"), *folder.glob("agents/*.key*"))):
        try:
            body = orjson.loads(path.read_bytes())
            signer = Ed25519Signer(base64.b64decode(body["secret"]), body["purpose"], body["agent"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KeyFileError(f"the key file `{path}` does not hold a key") from error
        found[signer.public] = f"the {signer.purpose} key" + (f" of `{signer.agent}`" if signer.agent else "")
    return found


class Keyring:
    """Loads and makes keys under one folder; safe for threads and for several processes."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._lock = threading.Lock()
        self._signers: dict[tuple[Purpose, str], Ed25519Signer] = {}
        self._named: dict[str, Ed25519Signer] = {}  # those of receipts, as drafts name them
        self._box: PayloadBox | None = None

    def log_signer(self) -> Ed25519Signer:
        """Load the key of checkpoints and of key receipts."""
        return self._signer("log", "")

    def current_log_signer(self) -> Ed25519Signer:
        """Load the log's key as its file has it now: another process may have replaced it since a commit here."""
        return Ed25519Signer(load_or_create(self._folder, "log").secret, "log")

    def permit_signer(self) -> Ed25519Signer:
        """Load the key of permits."""
        return self._signer("permit", "")

    def mission_signer(self) -> Ed25519Signer:
        """Load the key of missions that this deployment issues."""
        return self._signer("mission", "")

    def attestation_signer(self) -> Ed25519Signer:
        """Load the key of session attestations and of projections."""
        return self._signer("attestation", "")

    def receipt_signer(self, agent: str = "") -> Ed25519Signer:
        """Load the key that signs the receipts of `agent`; without one, those of the gateway."""
        return self._signer("receipt", agent)

    def signer_for(self, name: str) -> Ed25519Signer:
        """Load the key that a draft's `signer` names."""
        found = self._named.get(name)
        if found is not None:
            return found
        if name == LOG_SIGNER:
            return self.log_signer()
        if name == PREVIOUS_LOG_SIGNER:
            return self.previous_log_signer()
        found = self.receipt_signer("" if name == GATEWAY_SIGNER else agent_of_signer(name))
        self._named[name] = found
        return found

    def rotate(self, purpose: Purpose, agent: str = "") -> Ed25519Signer:
        """Replace the current key of a purpose by a new one; the old one waits until `settle`."""
        set_aside(path_for(self._folder, purpose, agent))
        create(self._folder, purpose, agent, replace=True)
        with self._lock:
            self._signers.pop((purpose, agent), None)
            self._named.clear()
        return self._signer(purpose, agent)

    @property
    def is_replacing(self) -> bool:
        """Whether the replacement of a key is under way, or was left so."""
        return bool(replaced(self._folder))

    def settle(self, is_known: Callable[[str], bool]) -> None:
        """End every replacement that is under way: a new key that the log does not know is put back.

        Nobody else may be replacing a key meanwhile.
        """
        for path, purpose, agent in replaced(self._folder):
            current = Ed25519Signer(load(path, purpose, agent).secret, purpose, agent)
            settle(path, completed=is_known(current.kid))
        self.forget()

    def previous_log_signer(self) -> Ed25519Signer:
        """Load the log's key that is being replaced: it endorses its successor, and nothing else."""
        path = previous_path(path_for(self._folder, "log"))
        return Ed25519Signer(load(path, "log").secret, "log")

    def seal(self, payload: bytes) -> tuple[bytes, bytes]:
        """Seal one payload: its wrapped key, and its body."""
        return self.payload_box().seal(payload)

    def open_payload(self, key: bytes, body: bytes) -> bytes:
        """Open the payload that `seal` sealed; raises `StoreCorrupt` where it was changed."""
        return self.payload_box().open(key, body)

    def document_key(self) -> bytes:
        """Derive the key under which the documents of the store are sealed; it goes with that of payloads."""
        secret = load_or_create(self._folder, "payload").secret
        return hashlib.blake2b(key=secret, person=b"aegis/documents", digest_size=KEY_BYTES).digest()

    def forget(self) -> None:
        """Read the files again at the next use: another process may have rotated a key."""
        with self._lock:
            self._signers.clear()
            self._named.clear()

    def _signer(self, purpose: Purpose, agent: str) -> Ed25519Signer:
        found = self._signers.get((purpose, agent))
        if found is not None:
            return found
        with self._lock:
            secret = load_or_create(self._folder, purpose, agent).secret
            return self._signers.setdefault((purpose, agent), Ed25519Signer(secret, purpose, agent))

    def payload_box(self) -> PayloadBox:
        """Load the key of payloads, which is never replaced."""
        if self._box is None:
            self._box = PayloadBox(load_or_create(self._folder, "payload").secret)
        return self._box
