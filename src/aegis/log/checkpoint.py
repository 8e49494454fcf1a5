"""Checkpoints: the size and root of the log in a signed note.

Formats: https://c2sp.org/tlog-checkpoint and https://c2sp.org/signed-note, Ed25519 signatures.
Extension lines are refused, as this log writes none.
"""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from aegis.core.breaks import Break
from aegis.core.ed25519 import SIGNATURE_BYTES, verify
from aegis.core.ports import Head
from aegis.errors import LogInvalid, SignatureInvalid
from aegis.log.merkle import HASH_BYTES, Frontier

MAX_NOTE_BYTES: Final = 65_536  # a note is parsed before anything about it is trusted
MAX_SIGNATURES: Final = 16  # as above: each may cost one verification
_ED25519: Final = b"\x01"
_KEY_ID_BYTES: Final = 4
_DASH: Final = "— "  # em dash and space, which begin a signature line


class NoteSigner(Protocol):
    """Holds the log's key; `public` is the raw public half."""

    @property
    def public(self) -> bytes: ...

    def sign(self, message: bytes) -> bytes: ...


class Checkpoint(Struct, frozen=True, kw_only=True):
    """What a log commits to: that its first `size` leaves have the root `root`."""

    origin: str
    size: int
    root: bytes


class Note(Struct, frozen=True, kw_only=True):
    """A parsed checkpoint whose signatures nobody has verified yet."""

    unverified: Checkpoint
    text: bytes
    signatures: tuple[tuple[str, bytes, bytes], ...]


def checkpoint_of(head: Head, origin: str) -> Checkpoint:
    """The checkpoint of a log's end; raises `StoreCorrupt` where the frontier is not one of that size."""
    frontier = Frontier.decode(head.frontier)
    return Checkpoint(origin=origin, size=frontier.size, root=frontier.root())


def key_id(name: str, public: bytes) -> bytes:
    """The four bytes that hint at an Ed25519 key in a signature line: SHA-256(name || 0x0A || 0x01 || key)."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:_KEY_ID_BYTES]


def verifier_key(name: str, public: bytes) -> str:
    """The key as tools for signed notes take it: `name+hash+base64`."""
    return f"{name}+{key_id(name, public).hex()}+{_encode(_ED25519 + public)}"


def sign_checkpoint(checkpoint: Checkpoint, signer: NoteSigner) -> bytes:
    """The signed note; the name of the key is the origin. Raises `ValueError` for an origin no note can carry."""
    if not _is_name(checkpoint.origin):
        raise ValueError("an origin must not be empty or contain spaces or `+`")
    text = f"{checkpoint.origin}\n{checkpoint.size}\n{_encode(checkpoint.root)}\n".encode()
    signature = key_id(checkpoint.origin, signer.public) + signer.sign(text)
    return text + f"\n{_DASH}{checkpoint.origin} {_encode(signature)}\n".encode()


def parse_checkpoint(data: bytes) -> Note:
    """The note that `data` spells, in the one spelling that it has; raises `LogInvalid`."""
    # (1) Bounded, UTF-8, and no control characters but newlines.
    if len(data) > MAX_NOTE_BYTES:
        raise _invalid("it is too long")
    try:
        note = data.decode()
    except UnicodeDecodeError as error:
        raise _invalid("it is not UTF-8") from error
    if any(char < " " and char != "\n" for char in note):
        raise _invalid("it has control characters")
    # (2) Text and signatures, divided by the last empty line.
    text, divider, block = note.rpartition("\n\n")
    if not divider or not block.endswith("\n"):
        raise _invalid("it has no signatures")
    lines = text.split("\n")
    if len(lines) != 3:
        raise _invalid("it does not have three lines")
    # (3) Origin, size in decimal without leading zeros, root in base64.
    origin, size, root = lines
    if not _is_name(origin):
        raise _invalid("its origin is not a name")
    if not (size.isascii() and size.isdigit()) or (size[0] == "0" and size != "0") or len(size) > 18:
        raise _invalid("its size is not a number")
    decoded = _decode(root, HASH_BYTES)
    # (4) Signature lines: name, key id and signature.
    signatures = tuple(_signature(line) for line in block[:-1].split("\n"))
    if len(signatures) > MAX_SIGNATURES:
        raise _invalid("it has too many signatures")
    checkpoint = Checkpoint(origin=origin, size=int(size), root=decoded)
    return Note(unverified=checkpoint, text=f"{text}\n".encode(), signatures=signatures)


def open_checkpoint(note: Note, keys: Sequence[bytes]) -> tuple[Checkpoint, bytes]:
    """The checkpoint that a note carries, and which of the log's `keys` (raw, public) signed it.

    Signatures by other keys are ignored, as the format asks; a wrong one by a known key is not.
    Raises `LogInvalid` where none of the keys signed.
    """
    name = note.unverified.origin
    by_id = {key_id(name, public): public for public in keys}
    signer: bytes | None = None
    for signed_by, hint, signature in note.signatures:
        public = by_id.get(hint) if signed_by == name else None
        if public is None:
            continue
        try:
            verify(public, signature, note.text)
        except SignatureInvalid as error:
            raise _invalid("its signature is wrong") from error
        signer = public
    if signer is None:
        raise _invalid("no key of the log signed it")
    return note.unverified, signer


def _signature(line: str) -> tuple[str, bytes, bytes]:
    name, space, encoded = line.removeprefix(_DASH).partition(" ")
    if not line.startswith(_DASH) or not space or not _is_name(name):
        raise _invalid("a signature line is malformed")
    data = _decode(encoded, _KEY_ID_BYTES + SIGNATURE_BYTES)
    return name, data[:_KEY_ID_BYTES], data[_KEY_ID_BYTES:]


def _is_name(name: str) -> bool:
    return bool(name) and "+" not in name and not any(char.isspace() for char in name)


def _encode(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _decode(text: str, length: int) -> bytes:
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise _invalid("it has malformed base64") from error
    if len(data) != length or _encode(data) != text:
        raise _invalid("it has malformed base64")
    return data


def _invalid(detail: str) -> LogInvalid:
    return LogInvalid(Break(kind="checkpoint_invalid", detail=detail))
