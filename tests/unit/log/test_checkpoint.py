"""Checkpoints in the format of signed notes: interoperable, strict, and useless without the right key."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.core.ports import Head
from aegis.errors import LogInvalid, StoreCorrupt
from aegis.log.checkpoint import (
    MAX_NOTE_BYTES,
    MAX_SIGNATURES,
    Checkpoint,
    checkpoint_of,
    key_id,
    open_checkpoint,
    parse_checkpoint,
    sign_checkpoint,
    verifier_key,
)
from aegis.log.merkle import EMPTY_ROOT, Frontier, leaf_hash


class Key:
    def __init__(self, seed: int = 1):
        self.private = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        self.public = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def sign(self, message: bytes) -> bytes:
        return self.private.sign(message)


KEY = Key()
POINT = Checkpoint(origin="aegis/log/1", size=7, root=hashlib.sha256(b"root").digest())
NOTE = sign_checkpoint(POINT, KEY)
TEXT, SIGNATURE = NOTE.decode().split("\n\n")


def opened(data: bytes, *keys: Key) -> Checkpoint:
    return open_checkpoint(parse_checkpoint(data), [key.public for key in keys or (KEY,)])[0]


# Published keys of other logs: the name, the hint and the key belong together.
@pytest.mark.parametrize(
    "vkey",
    [
        "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
    ],
)
def test_key_hints_are_those_of_other_implementations(vkey: str) -> None:
    name, hint, encoded = vkey.split("+", 2)
    public = base64.b64decode(encoded)[1:]
    assert key_id(name, public).hex() == hint
    assert verifier_key(name, public) == vkey


def test_a_checkpoint_is_a_note_of_three_lines_and_a_signature() -> None:
    root = base64.b64encode(POINT.root).decode()
    assert f"aegis/log/1\n7\n{root}" == TEXT
    assert SIGNATURE.startswith("— aegis/log/1 ")
    assert SIGNATURE.endswith("\n")
    assert opened(NOTE) == POINT


def test_the_key_that_signed_is_named() -> None:
    note = parse_checkpoint(NOTE)
    assert open_checkpoint(note, [Key(2).public, KEY.public])[1] == KEY.public


def test_another_key_is_refused() -> None:
    with pytest.raises(LogInvalid, match="no key of the log"):
        opened(NOTE, Key(2))
    with pytest.raises(LogInvalid, match="no key of the log"):
        open_checkpoint(parse_checkpoint(NOTE), [])


def test_a_signature_by_a_witness_is_ignored_and_a_wrong_one_by_the_log_is_not() -> None:
    witness = sign_checkpoint(Checkpoint(origin="witness", size=7, root=POINT.root), Key(2)).decode().split("\n\n")[1]
    assert opened(f"{TEXT}\n\n{witness}{SIGNATURE}".encode()) == POINT
    with pytest.raises(LogInvalid, match="no key of the log"):
        opened(f"{TEXT}\n\n{witness}".encode())
    wrong = sign_checkpoint(Checkpoint(origin="aegis/log/1", size=8, root=POINT.root), KEY).decode().split("\n\n")[1]
    for lines in (wrong, SIGNATURE + wrong, wrong + SIGNATURE):
        with pytest.raises(LogInvalid, match="signature is wrong"):
            opened(f"{TEXT}\n\n{lines}".encode())


def test_a_signature_under_another_name_does_not_count() -> None:
    with pytest.raises(LogInvalid, match="no key of the log"):
        opened(f"{TEXT}\n\n{SIGNATURE.replace('aegis/log/1', 'aegis/log/2')}".encode())


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(NOTE) * 8 - 1))
def test_any_flipped_bit_is_refused(bit: int) -> None:
    changed = bytearray(NOTE)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(LogInvalid) as caught:
        opened(bytes(changed))
    assert caught.value.broken.kind == "checkpoint_invalid"


ROOT = base64.b64encode(POINT.root).decode()


ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
UNUSED_BITS = f"{ROOT[:-2]}{ALPHABET[ALPHABET.index(ROOT[-2]) ^ 1]}=".encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no signatures"),
        (b"\n\n", "no signatures"),
        (b"a\n\nb", "no signatures"),
        (NOTE[:-1], "no signatures"),
        (NOTE + b"\n", "no signatures"),
        (NOTE.replace(b"\n\n", b"\n"), "no signatures"),
        (NOTE.replace(b"\n\n", b"\nextension\n\n"), "three lines"),
        (NOTE.replace(b"\n7\n", b"\n"), "three lines"),
        (NOTE.replace(b"\n7\n", b"\n07\n"), "size"),
        (NOTE.replace(b"\n7\n", b"\n00\n"), "size"),
        (NOTE.replace(b"\n7\n", b"\n+7\n"), "size"),
        (NOTE.replace(b"\n7\n", b"\n-7\n"), "size"),
        (NOTE.replace(b"\n7\n", b"\n7 \n"), "size"),
        (NOTE.replace(b"\n7\n", "\n٧\n".encode()), "size"),
        (NOTE.replace(b"\n7\n", "\n²\n".encode()), "size"),
        (NOTE.replace(b"\n7\n", b"\n1" + b"0" * 18 + b"\n"), "size"),
        (NOTE.replace(b"\n7\n", b"\r\n7\n"), "control"),
        (NOTE.replace(b"aegis/log/1", b"aegis\x00log"), "control"),
        (NOTE.replace(ROOT.encode(), ROOT[:-1].encode()), "base64"),
        (NOTE.replace(ROOT.encode(), ROOT.encode() + b"="), "base64"),
        (NOTE.replace(ROOT.encode(), base64.b64encode(POINT.root[:-2])), "base64"),
        (NOTE.replace(ROOT.encode(), base64.b64encode(POINT.root + b"x")), "base64"),
        (NOTE.replace(ROOT.encode(), UNUSED_BITS), "base64"),
        (NOTE.replace(ROOT.encode(), b"*" + ROOT[1:].encode()), "base64"),
        (NOTE.replace(ROOT.encode(), "é".encode() * 22), "base64"),
        (NOTE.replace("— ".encode(), b"- "), "signature line"),
        (NOTE.replace("— ".encode(), "—".encode()), "signature line"),
        (NOTE.replace("— aegis/log/1".encode(), "— ".encode()), "signature line"),
        (NOTE.replace("— aegis/log/1 ".encode(), "— aegis/log/1".encode()), "signature line"),
        (NOTE.replace("— aegis/log/1".encode(), "— aegis+log/1".encode()), "signature line"),
        (NOTE.replace(b"aegis/log/1\n", b"aegis log\n"), "origin"),
        (NOTE.replace(b"aegis/log/1\n", b"aegis+log\n"), "origin"),
        (NOTE.replace(b"aegis/log/1\n", b"\n"), "origin"),
        (NOTE.replace(b"aegis/log/1\n", "aegis\u2003log\n".encode()), "origin"),
        (NOTE.replace(b"aegis/log/1", b"\xff"), "UTF-8"),
        (f"{TEXT}\n\n{SIGNATURE * (MAX_SIGNATURES + 1)}".encode(), "too many"),
        (f"{TEXT}\n\n{SIGNATURE}\n{SIGNATURE}".encode(), "three lines"),
        (f"{TEXT}\n\n— aegis/log/1\n".encode(), "signature line"),
        (f"{TEXT}\n\n— aegis/log/1 {ROOT}\n".encode(), "base64"),
        (b"a" * (MAX_NOTE_BYTES + 1), "too long"),
    ],
)
def test_only_the_one_spelling_is_read(data: bytes, why: str) -> None:
    assert data != NOTE
    with pytest.raises(LogInvalid, match=why) as caught:
        parse_checkpoint(data)
    assert caught.value.broken.kind == "checkpoint_invalid"


def test_a_note_may_be_as_long_as_it_may_be() -> None:
    assert (MAX_NOTE_BYTES, MAX_SIGNATURES) == (65_536, 16)
    padding = MAX_NOTE_BYTES - len(NOTE) + len("aegis/log/1")
    data = NOTE.replace(b"aegis/log/1\n", b"o" * padding + b"\n")
    assert len(data) == MAX_NOTE_BYTES
    assert parse_checkpoint(data).unverified.size == 7
    with pytest.raises(LogInvalid, match="too long"):
        parse_checkpoint(NOTE.replace(b"aegis/log/1\n", b"o" * (padding + 1) + b"\n"))


@pytest.mark.parametrize("size", [0, 1, 10, 100, 10**17])
def test_sizes_are_plain_numbers(size: int) -> None:
    assert parse_checkpoint(NOTE.replace(b"\n7\n", b"\n%d\n" % size)).unverified.size == size


def test_the_largest_and_smallest_sizes_are_read() -> None:
    for size in (0, 10**18 - 1):
        point = Checkpoint(origin="o", size=size, root=POINT.root)
        assert opened(sign_checkpoint(point, KEY)) == point
    assert opened(f"{TEXT}\n\n{SIGNATURE * MAX_SIGNATURES}".encode()) == POINT


@pytest.mark.parametrize("origin", ["", "a b", "a+b", "a\nb", "a\u00a0b"])
def test_an_origin_that_no_note_can_carry_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="origin"):
        sign_checkpoint(Checkpoint(origin=origin, size=0, root=POINT.root), KEY)


def test_the_checkpoint_of_a_head_is_its_size_and_root() -> None:
    assert checkpoint_of(Head(), "o") == Checkpoint(origin="o", size=0, root=EMPTY_ROOT)
    frontier, _ = Frontier.empty().extend([leaf_hash(b"a"), leaf_hash(b"b")])
    found = checkpoint_of(Head(size=2, frontier=frontier.encode()), "o")
    assert (found.size, found.root) == (2, frontier.root())
    with pytest.raises(StoreCorrupt):
        checkpoint_of(Head(size=2, frontier=b"x"), "o")
