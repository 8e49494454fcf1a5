"""Ed25519 as everybody else has it, and stricter where the standard leaves it open."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.core.ed25519 import SigningKey, verify
from aegis.errors import SignatureInvalid

# RFC 8032, 7.1, tests 1 to 3: secret key, public key, message, signature.
VECTORS = (
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
)
ORDER = 2**252 + 27742317777372353535851937790883648493
# The neutral element and the points of order 2, 4 and 8, as keys that sign everything for some message or all.
SMALL_ORDER = (
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
)


@pytest.mark.parametrize(("secret", "public", "message", "signature"), VECTORS)
def test_the_vectors_of_the_rfc_hold(secret: str, public: str, message: str, signature: str) -> None:
    key = SigningKey(bytes.fromhex(secret))
    assert key.public.hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    verify(key.public, bytes.fromhex(signature), bytes.fromhex(message))


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=300))
def test_it_signs_as_another_implementation_does(seed: bytes, message: bytes) -> None:
    signature = SigningKey(seed).sign(message)
    assert signature == Ed25519PrivateKey.from_private_bytes(seed).sign(message)
    Ed25519PublicKey.from_public_bytes(SigningKey(seed).public).verify(signature, message)


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 511), st.integers(0, 255))
def test_no_bit_of_a_signature_or_of_a_key_can_change(message: bytes, of_signature: int, of_key: int) -> None:
    key = SigningKey(bytes(32))
    signature = key.sign(message)
    for public, changed in ((key.public, _flipped(signature, of_signature)), (_flipped(key.public, of_key), signature)):
        with pytest.raises(SignatureInvalid):
            verify(public, changed, message)


def test_another_message_is_refused() -> None:
    key = SigningKey(bytes(32))
    for message in (b"", b"b", b"aa", b"a\0"):
        with pytest.raises(SignatureInvalid):
            verify(key.public, key.sign(b"a"), message)


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    signature = SigningKey(bytes(32)).sign(b"m")
    with pytest.raises(SignatureInvalid):
        verify(bytes(length), signature, b"m")
    if length != 32:
        with pytest.raises(ValueError, match=r"."):
            SigningKey(bytes(length))


@pytest.mark.parametrize("length", [0, 32, 63, 65])
def test_a_signature_of_another_length_is_refused(length: int) -> None:
    """Also one whose missing bytes are at the beginning of the message."""
    key = SigningKey(bytes(32))
    signed = key.sign(b"m") + b"m"
    with pytest.raises(SignatureInvalid):
        verify(key.public, signed[:length], signed[length:])


def test_a_signature_has_one_spelling() -> None:
    """RFC 8032, 5.1.7: the number in it is below the order, so that nobody makes a second one of it."""
    key = SigningKey(bytes(32))
    signature = key.sign(b"m")
    second = int.from_bytes(signature[32:], "little") + ORDER
    with pytest.raises(SignatureInvalid):
        verify(key.public, signature[:32] + second.to_bytes(32, "little"), b"m")


@pytest.mark.parametrize("public", SMALL_ORDER)
def test_a_key_that_many_signatures_fit_is_refused(public: str) -> None:
    neutral = bytes.fromhex(SMALL_ORDER[0])
    with pytest.raises(SignatureInvalid):
        verify(bytes.fromhex(public), neutral + bytes(32), b"anything")


def test_a_key_tells_nothing_of_itself() -> None:
    seed = bytes(range(32))
    shown = f"{SigningKey(seed)!r} {SigningKey(seed)}"
    assert seed.hex() not in shown
    assert repr(seed) not in shown


def _flipped(data: bytes, bit: int) -> bytes:
    return bytes(byte ^ (1 << bit % 8) if at == bit // 8 else byte for at, byte in enumerate(data))
