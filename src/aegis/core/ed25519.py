"""Ed25519 (RFC 8032): the one place where signatures are made and verified.

By libsodium, which takes two thirds of OpenSSL's time for a signature and half of it for a check. It also
refuses points of small order and encodings that are not canonical, which the RFC leaves open, so that a
signature holds for one key and one message alone.
"""

from __future__ import annotations

from typing import Final

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

from aegis.errors import SignatureInvalid

PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


class SigningKey:
    """One private key; `public` is its public half, 32 bytes."""

    __slots__ = ("_secret", "public")

    def __init__(self, seed: bytes):
        """From the 32 bytes of RFC 8032, 5.1.5; raises `ValueError` for any other number of them."""
        self.public, self._secret = crypto_sign_seed_keypair(seed)

    def sign(self, message: bytes) -> bytes:
        """The raw signature (64 bytes) of `message`."""
        return crypto_sign(message, self._secret)[:SIGNATURE_BYTES]


def verify(public: bytes, signature: bytes, message: bytes) -> None:
    """Guarantee that the key `public` signed `message`; raises `SignatureInvalid` for anything else."""
    # libsodium takes both for as long as they should be, and would read beyond what is shorter.
    if len(public) != PUBLIC_BYTES or len(signature) != SIGNATURE_BYTES:
        raise SignatureInvalid("a key or a signature has another length than Ed25519 asks for")
    try:
        crypto_sign_open(signature + message, public)
    except BadSignatureError as error:
        raise SignatureInvalid("the signature does not hold") from error
