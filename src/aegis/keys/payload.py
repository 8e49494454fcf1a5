"""Payloads at rest: each under its own key (AES-256-GCM), which one master key wraps.

Deleting the wrapped key and the salt erases a payload for good; the log commits to it and still
verifies. A key seals one payload, so its nonce may be constant.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from aegis.errors import StoreCorrupt

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
        """The wrapped key and the sealed body."""
        fresh = os.urandom(_KEY_BYTES + _NONCE_BYTES)
        key, nonce = fresh[:_KEY_BYTES], fresh[_KEY_BYTES:]
        body = AESGCM(key).encrypt(_ONCE, payload, _BODY)
        return nonce + self._master.encrypt(nonce, key, _WRAP), body

    def open(self, key: bytes, body: bytes) -> bytes:
        """The payload; raises `StoreCorrupt` where key or body were changed or belong to another deployment."""
        try:
            inner = self._master.decrypt(key[:_NONCE_BYTES], key[_NONCE_BYTES:], _WRAP)
            return AESGCM(inner).decrypt(_ONCE, body, _BODY)
        except (InvalidTag, ValueError) as error:
            raise StoreCorrupt("a stored payload does not open under the keys of this deployment") from error
